"""Simulator, engines and the PyTorch adapter know what a strategy is, and no strategy by name."""

from __future__ import annotations

import ast
from pathlib import Path

import syncline
from syncline.strategies.protocol import Strategy
from syncline.strategies.table import STRATEGIES

PACKAGE = Path(syncline.__file__).parent

TABLE = "strategies/table.py"

OWN = (
    "strategies/server/",
    "nodes/server/",
    "strategies/exchange/",
    "nodes/exchange/",
    "strategies/tree/",
    "nodes/tree/",
)
"""The packages of the strategies that there are."""

SUITES = ("testing/",)
"""A conformance suite for sync models needs the shard that asks them."""


def others() -> list[Path]:
    """The files that belong to no strategy."""
    return [
        path
        for path in sorted(PACKAGE.rglob("*.py"))
        if not path.relative_to(PACKAGE).as_posix().startswith(OWN + SUITES) and not path.match(TABLE)
    ]


def names_in(path: Path) -> set[str]:
    """Every name, attribute and imported name of a file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def modules_in(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def test_no_strategy_is_named_outside_of_its_package_and_the_table() -> None:
    classes = {each.__name__ for each in STRATEGIES.values()}
    assert len(others()) > 150
    assert {str(path): names_in(path) & classes for path in others() if names_in(path) & classes} == {}


def test_nothing_but_the_table_imports_a_strategy_or_its_nodes() -> None:
    packages = tuple(f"syncline.{each.rstrip('/').replace('/', '.')}" for each in OWN)
    found = {str(path): {each for each in modules_in(path) if each.startswith(packages)} for path in others()}
    assert {path: modules for path, modules in found.items() if modules} == {}


def test_no_strategy_by_the_name_of_its_kind() -> None:
    """Roles are called worker and server; the kind of a strategy is a matter of settings, and of the table."""
    for kind, strategy in STRATEGIES.items():
        assert strategy.kind == kind
        assert issubclass(strategy, Strategy)
