"""The `syncline` command."""

from __future__ import annotations

from syncline.cli.main import main

__all__ = ["main"]
