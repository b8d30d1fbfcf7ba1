"""Writes commands.md: what `--help` says of every command.

python docs/make_commands.py [--check]        --check: only say whether the page is up to date
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).with_name("commands.md")
COMMANDS = ("train", "run", "tell", "simulate", "reproduce", "bench")
ENVIRONMENT = {"COLUMNS": "110", "TERM": "dumb", "NO_COLOR": "1", "TERMINAL_WIDTH": "110"}


def help_of(*words: str) -> str:
    command = [sys.executable, "-m", "syncline", *words, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **ENVIRONMENT})
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines())


def page() -> str:
    parts = ["# Commands", "", "What `--help` says; written by `make docs`.", ""]
    for words in [(), *((command,) for command in COMMANDS)]:
        parts += [f"## {' '.join(('syncline', *words))}", "", "```text", help_of(*words), "```", ""]
    return "\n".join(parts)


def main() -> None:
    text = page()
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text() != text and "docs/commands.md is not up to date: make docs")
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
