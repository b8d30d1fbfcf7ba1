"""Options that make no sense: every command refuses them with one line, before anything starts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from commands import refused

LONG = "x" * 10_000
MANY = "1" + "0" * 18

BAD: dict[str, tuple[tuple[str, ...], str]] = {
    # Numbers.
    "run: 10^20 servers": (("run", "--servers", "99999999999999999999", "program.py"), "--servers: .*at most 1,024"),
    "run: 10^18 workers": (("run", "-n", MANY, "program.py"), "--workers: .*at most 1,024"),
    "run: 10^18 restarts": (("run", "--restarts", MANY, "program.py"), "--restarts: .*at most"),
    "run: seed -1": (("run", "--seed", "-1", "program.py"), "seed: .*from 0"),
    "run: seed of 400 digits": (("run", "--seed", "9" * 400, "program.py"), "seed: .*from 0"),
    "run: patience": (("run", "--patience", "1e300s", "program.py"), "patience: .*at most"),
    "run: backups with one server": (("run", "--backups", "1", "program.py"), "backups: .*use --servers 2"),
    "run: 2 backups": (("run", "--servers", "3", "--backups", "2", "program.py"), "backups: must be 0 or 1, not 2"),
    "run: backups of nobody": (("run", "--backups=1", "--strategy=exchange", "program.py"), "backups: .*no servers"),
    "run: backups of a tree": (("run", "--backups", "1", "--strategy", "tree", "program.py"), "backups: .*copies"),
    "train: backups with one server": (("train", "--backups", "1"), "backups: .*use --servers 2"),
    "run: bucket": (("run", "--bucket", "1e99B", "program.py"), "bucket: .*out of range"),
    "simulate: 10^20 servers": (("simulate", "x.toml", "--servers", "99999999999999999999"), ".*servers: .*10,000"),
    "simulate: seed -1": (("simulate", "x.toml", "--seed", "-1"), "seed: must be at least 0"),
    "simulate: 10^18 iterations": (("simulate", "x.toml", "--iterations", MANY), "iterations: .*at most"),
    "train: 10^18 iterations": (("train", "--iterations", MANY), "--iterations: .*at most"),
    "train: 10^20 servers": (("train", "--servers", "99999999999999999999"), "--servers: .*at most 1,024"),
    "train: 10^18 repeats": (("train", "--compare", "--repeats", MANY), "--repeats: .*at most 1,000"),
    "train: slow": (("train", "--slow", "1:1e300"), "--slow: .*at most 10,000"),
    "bench: 10^18 rounds": (("bench", "--rounds", MANY), "--rounds: .*at most 1,000,000"),
    "bench: size of 400 digits": (("bench", "--size", "9" * 400), "--size: .*at most"),
    "bench: 10^20 servers": (("bench", "--servers", "99999999999999999999"), "--servers: .*at most 1,024"),
    "reproduce: jobs": (("reproduce", "all", "--jobs", MANY), "--jobs: .*at most"),
    # What is empty.
    "run: lane": (("run", "--lane", "", "program.py"), "--lane: is empty"),
    "run: listen": (("run", "--listen", "", "program.py"), "--listen: is empty"),
    "run: join": (("run", "--join", "", "program.py"), "--join: is empty"),
    "run: trace": (("run", "--trace", "", "program.py"), "--trace: is empty"),
    "run: log-dir": (("run", "--log-dir=", "program.py"), "--log-dir: is empty"),
    "run: second sync": (("run", "--sync", "bsp", "--sync", "", "program.py"), "--sync: is empty"),
    "train: engine": (("train", "--engine", ""), "--engine: is empty"),
    "train: lane": (("train", "--lane", ""), "--lane: is empty"),
    "train: recipe": (("train", ""), "RECIPE: is empty"),
    "train: tensorboard": (("train", "--tensorboard", ""), "--tensorboard: is empty"),
    "simulate: rule": (("simulate", "x.toml", "--rule", ""), "--rule: is empty"),
    "tell: run": (("tell", "", "--sync", "bsp"), r"\[RUN\]: is empty"),
    # Texts.
    "run: sync of 10 kB": (("run", "--sync", LONG, "program.py"), "sync: .*10,002 .*choose one of"),
    "run: program of 10 kB": (("run", LONG), ".*10,001 characters.*File name too long"),
    "run: number of 10 kB": (("run", "-n", LONG, "program.py"), "Invalid value for '--workers'"),
    "simulate: file of 10 kB": (("simulate", LONG), ".*characters"),
    "simulate: trailing comma": (("simulate", "x.toml", "--strategy", "server:bsp,"), "--strategy: .*comma"),
    "simulate: nothing after the colon": (("simulate", "x.toml", "--strategy", "server:"), "--strategy: .*colon"),
    # Devices.
    "simulate: /dev/full": (("simulate", "/dev/full"), "/dev/full: is too large"),
    "run: config /dev/zero": (("run", "--config", "/dev/zero", "program.py"), "/dev/zero: is too large"),
    "run: program /dev/full": (("run", "/dev/full"), "PROGRAM: .*a device"),
    "run: key file /dev/zero": (
        ("run", "--listen", "127.0.0.1:0", "--key-file", "/dev/zero", "program.py"), "--key-file: /dev/zero is not"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_option(case: str, tmp_path: Path) -> None:
    words, pattern = BAD[case]
    (tmp_path / "program.py").touch()
    (tmp_path / "x.toml").write_text("iterations = 2\n[cluster]\nworkers = 2\n")
    said = refused(tmp_path, *words)
    assert re.match(pattern, said), said
    assert len(said) < 1200
