"""Names in the package: a class has one of its own, and a file that is mentioned exists."""

from __future__ import annotations

import ast
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import syncline

PACKAGE = Path(syncline.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))


def test_no_two_classes_share_a_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert len(places) > 100
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_every_file_that_is_mentioned_exists() -> None:
    known = {path.relative_to(PACKAGE).as_posix() for path in FILES}
    mentioned = [(path, name) for path in FILES for name in mentions(path)]
    assert len(mentioned) > 20
    assert [(str(path), name) for path, name in mentioned if not exists(name, known)] == []


def mentions(path: Path) -> Iterator[str]:
    """The names of Python files in docstrings and comments."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from names_in(node.value.value)
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.COMMENT:
                yield from names_in(token.string)


def names_in(text: str) -> list[str]:
    return re.findall(r"[\w/]+\.py\b", text)


def exists(name: str, known: set[str]) -> bool:
    """Is this the end of a path in the package?"""
    return any(f"/{path}".endswith(f"/{name}") for path in known)


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("as link.py says, and `nodes/server/shard.py`", []),
        ("(worker/traffic.py)", []),
        ("shadow.py and hard.py; nodes/traffic.py", ["shadow.py", "hard.py", "nodes/traffic.py"]),
        ("the python.python", []),
    ],
)
def test_a_file_that_does_not_exist_is_found(text: str, missing: list[str]) -> None:
    known = {"engines/worker/link.py", "engines/worker/traffic.py", "nodes/server/shard.py"}
    assert [name for name in names_in(text) if not exists(name, known)] == missing
