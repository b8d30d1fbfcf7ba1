"""Writes commands.md, which shows the `--help` text of every command.

python docs/make_commands.py [--check]        --check: write nothing; fail if the page is out of date
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).with_name("commands.md")
COMMANDS = ("train", "run", "doctor", "tell", "simulate", "plan", "reproduce", "bench")
ENVIRONMENT = {"COLUMNS": "110", "TERM": "dumb", "NO_COLOR": "1", "TERMINAL_WIDTH": "110"}


def help_of(*words: str) -> str:
    command = [sys.executable, "-m", "syncline", *words, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **ENVIRONMENT})
    text = done.stdout.strip("\n").replace("Usage: python -m syncline", "Usage: syncline")
    return "\n".join(line.rstrip() for line in text.splitlines())


def page() -> str:
    parts = ["# Commands", "", "The `--help` text of every command. `make docs` writes this page.", ""]
    for words in [(), *((command,) for command in COMMANDS)]:
        parts += [f"## {' '.join(('syncline', *words))}", "", "```text", help_of(*words), "```", ""]
    return "\n".join(parts)


def main() -> None:
    text = page()
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text() != text and "docs/commands.md is out of date; run: make docs")
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
