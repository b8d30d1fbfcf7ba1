"""The list of parts with a mistake (wrong_rules.py, wrong_parts.py): each with words of the message that names it."""

from __future__ import annotations

from typing import Any

WRONG: dict[str, list[tuple[Any, str]]] = {"rule": [], "gate": [], "placement": [], "sync": [], "codec": []}


def wrong(kind: str, message: str, *arguments: Any) -> Any:
    def add(part: Any) -> Any:
        WRONG[kind].append((part(*arguments) if isinstance(part, type) else part, message))
        return part

    return add
