"""What `--engine ray` refuses before anything runs, and the parts of a run on Ray that need no cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import refused
from syncline.ray.cluster import spread
from syncline.ray.notes import Notes


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--engine", "spark"], "--engine: must be local or ray, not 'spark'"),
        (["--address", "127.0.0.1:1"], "--address: names a Ray cluster; add --engine ray"),
        (["--engine", "ray", "--listen", "127.0.0.1:0"], "--listen: cannot be used with --engine ray"),
        (["--engine", "ray", "--grow", "at=1s"], "--grow: cannot be used with --engine ray"),
        (["--engine", "ray", "--insecure"], "--insecure: cannot be used with --engine ray"),
        (["--engine", "ray", "--slurm"], "--slurm: cannot be used with --engine ray: Ray chooses the hosts"),
        (["--engine", "ray", "--address", "ray://h:1"], "--address: 'ray://h:1' is a Ray client address"),
        (["--engine", "ray", "--address", "here"], "--address: 'here' is not an address; write ADDRESS:PORT"),
        (["--engine", "ray", "--address", "127.0.0.1:1"], "--address: there is no Ray cluster at 127.0.0.1:1"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, words: list[str], expected: str) -> None:
    (tmp_path / "program.py").touch()
    assert expected in refused(tmp_path, "run", *words, "program.py")


def test_without_ray_the_command_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "program.py").touch()
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    assert "--engine: Ray is not installed; install it with: pip install 'syncline[ray]'" in refused(
        tmp_path, "run", "--engine", "ray", "program.py"
    )


def test_workers_are_numbered_by_node_and_servers_spread() -> None:
    shares = spread({"a": (0, 2), "b": (1,), "c": (3, 4, 5)}, servers=2)
    assert [share.workers for share in shares] == [(0, 2), (2, 3), (3, 6)]
    assert [share.servers for share in shares] == [(0, 0), (0, 1), (1, 2)]
    assert [share.bundles for share in shares] == [(0, 2), (1,), (3, 4, 5)]


def test_a_line_that_several_hosts_say_is_shown_once() -> None:
    notes = Notes()
    assert notes.new("a", "1.0 s: worker 3: gone", 5.0) == "5.0 s: worker 3: gone"
    assert notes.new("b", "1.2 s: worker 3: gone", 5.1) is None
    assert notes.new("b", "9.0 s: worker 3: gone", 9.0) == "9.0 s: worker 3: gone", "it is gone once more"
    assert notes.new("a", "9.1 s: worker 3: gone", 9.1) is None
