"""Runs that write checkpoints, are killed as a whole at a random moment, and go on: as if nothing had happened."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from engine import running
from samples import sampled
from saved_runs import end_of, kill_all, whole_steps

TABLES = """
import hashlib
wishes, end = eval(sys.argv[1]), int(sys.argv[2])
session = syncline.connect()
tables = session.tables({"w": np.linspace(-1, 1, 3000).reshape(30, 100), "b": np.zeros(7)}, **wishes)
while session.iteration < end:
    i = session.iteration
    if session.is_leader:
        say("iteration", i)
    noise = np.random.default_rng(1000 * i + session.rank)
    for name, table in tables.items():
        gradient = table - np.sin(np.arange(table.size)).reshape(table.shape)
        gradient = gradient + 0.1 * noise.standard_normal(table.shape)
        session.update(name, gradient if "rule" in wishes else -0.1 * gradient)
    session.clock()
    session.sync()
session.close()
say("digest", hashlib.sha256(b"".join(table.tobytes() for table in tables.values())).hexdigest())
"""

END = 60


CASES = (
    {},
    {"rule": "momentum:0.05"},
    {"codec": "terngrad:true"},
    {"codec": "qsgd:7", "reply_codec": "topk:0.1"},
    {"rule": "momentum:0.05", "reply_codec": "int8"},
    {"gate": "every:push=3,fetch=2"},
    {"gate": "budget:4KB", "codec": "topk:0.3"},
    {"rule": "sasgd:0.05", "gate": "every:push=3,fetch=2"},
    {"rule": "fasgd:0.01", "gate": "bandwidth:fetch=0.1"},
    {"rule": "adam:0.01", "gate": "significance:0.01"},
)


@pytest.mark.parametrize("case", sampled(range(len(CASES)), 5))
def test_a_run_that_is_killed_goes_on_as_if_it_had_not_been(case: int, tmp_path: Path) -> None:
    """It is killed twice, after random iterations. It writes checkpoints all the time, maybe also at that moment."""
    wishes, draw = repr(CASES[case]), random.Random(case)
    words = {"words": (wishes, str(END)), "name": "program.py"}
    with running(tmp_path, TABLES, "-n", "2", **words) as run:  # type: ignore[arg-type]
        whole = end_of(run)
    options = ["--checkpoint", str(tmp_path / "saved"), "--checkpoint-every", "5"]
    first, second = draw.randrange(12, 25), draw.randrange(36, 50)
    with running(tmp_path, TABLES, "-n", "2", *options, **words) as run:  # type: ignore[arg-type]
        run.hears(f"iteration {first}\n")
        kill_all(run)
    options += ["--resume", str(tmp_path / "saved")]
    with running(tmp_path, TABLES, "-n", "2", *options, **words) as run:  # type: ignore[arg-type]
        run.hears(f"iteration {second}\n")
        kill_all(run)
        saved = whole_steps(tmp_path / "saved")
        assert len(saved) <= 3 + 1  # the new one is there before the oldest is removed
        assert saved[-1] > first - 10
    with running(tmp_path, TABLES, "-n", "2", *options, **words) as run:  # type: ignore[arg-type]
        assert end_of(run) == whole
        begun = [int(line.split()[-1]) for line in run.out.splitlines() if "iteration" in line]
        assert min(begun) == saved[-1]
        assert f"resumes from step {saved[-1]}" in run.err


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["exchange", "exchange:partitions=2", "tree", "ssp:3", "drop:1", "asp"])
def test_runs_that_are_not_deterministic_go_on_too(strategy: str, tmp_path: Path) -> None:
    wishes = {"strategy": strategy} if strategy[:2] in ("ex", "tr") else {"sync": strategy}
    words = {"words": (repr(wishes), str(END)), "name": "program.py"}
    options = ["--checkpoint", str(tmp_path / "saved"), "--checkpoint-every", "5"]
    with running(tmp_path, TABLES, "-n", "3", *options, **words) as run:  # type: ignore[arg-type]
        run.hears(r"iteration (2[5-9]|[345]\d)\n")  # under drop the leader may skip iterations
        kill_all(run)
    (*_, last) = whole_steps(tmp_path / "saved")
    with running(tmp_path, TABLES, "-n", "3", "--resume", str(tmp_path / "saved"), **words) as run:  # type: ignore[arg-type]
        assert run.ends() == 0, run.story()
        assert run.out.count("digest") == 3
        begun = [int(line.split()[-1]) for line in run.out.splitlines() if "iteration" in line]
        assert min(begun) >= last - 5
        assert max(begun) == END - 1 or strategy == "drop:1"


UNTIL_SAVED = """
session = syncline.connect()
tables = session.tables({"w": np.zeros(9)}, sync=sys.argv[2])
while b"1" not in session.share("saved", b"1" if list(Path(sys.argv[1]).glob("step-*/checkpoint.json")) else b"0"):
    session.update("w", np.ones(9))
    session.clock()
    session.sync()
session.close()
"""


@pytest.mark.parametrize("sync", ["bsp", "ssp:3"])
def test_checkpoints_by_time(sync: str, tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    options = ("-n", "2", "--checkpoint", str(folder), "--checkpoint-every", "20ms")
    with running(tmp_path, UNTIL_SAVED, *options, words=(str(folder), sync)) as run:
        assert run.ends() == 0, run.story()
    manifests = [json.loads(path.read_text()) for path in folder.glob("step-*/checkpoint.json")]
    assert manifests
    if sync == "bsp":
        for each in manifests:
            assert {worker["iteration"] for worker in each["saved"].values()} == {each["step"]}


@pytest.mark.slow
def test_another_number_of_workers_and_servers_goes_on_and_says_so(tmp_path: Path) -> None:
    words = {"words": ("{'codec': 'topk:0.1'}", "30"), "name": "program.py"}
    folder = str(tmp_path / "saved")
    with running(tmp_path, TABLES, "-n", "3", "--checkpoint", folder, "--checkpoint-every", "20", **words) as run:  # type: ignore[arg-type]
        assert run.ends() == 0, run.story()
    words = {"words": ("{'codec': 'topk:0.2'}", "40"), "name": "program.py"}
    for workers in ("2", "4"):
        with running(tmp_path, TABLES, "-n", workers, "--servers", "2", "--resume", folder, **words) as run:  # type: ignore[arg-type]
            end_of(run)
            assert f"now {workers} workers, it had 3; now 2 servers, it had 1" in run.err
            assert "codec is topk:0.2; the checkpoint was written with topk:0.1" in run.err


def test_a_worker_that_dies_is_not_waited_for(tmp_path: Path) -> None:
    words = {"words": ("{}", "200"), "name": "program.py"}
    folder = tmp_path / "saved"
    with running(tmp_path, TABLES, "-n", "3", "--checkpoint", str(folder), "--checkpoint-every", "5", **words) as run:  # type: ignore[arg-type]
        run.hears("iteration 20\n")
        run.kill(run.worker(2))
        assert run.ends() == 0, run.story()
    *_, last = sorted(folder.glob("step-*/checkpoint.json"))
    assert set(json.loads(last.read_text())["saved"]) == {"0", "1"}
    saved = load_file(last.parent / "model.safetensors")
    assert {name: each.shape for name, each in saved.items()} == {"w": (30, 100), "b": (7,)}
    assert np.isfinite(saved["w"]).all()


def test_a_checkpoint_that_cannot_be_written_does_not_end_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    (folder / "step-00000010").write_text("in the way")
    words = {"words": ("{}", "40"), "name": "program.py"}
    with running(tmp_path, TABLES, "-n", "2", "--checkpoint", str(folder), "--checkpoint-every", "10", **words) as run:  # type: ignore[arg-type]
        end_of(run)
        assert run.err.count("could not write its checkpoint of step 10") == 1
    assert set(whole_steps(folder)) & {20, 30}
    assert (folder / "step-00000010").read_text() == "in the way"


def test_other_tables_are_refused_by_the_run(tmp_path: Path) -> None:
    words = {"words": ("{}", "12"), "name": "program.py"}
    folder = tmp_path / "saved"
    with running(tmp_path, TABLES, "-n", "1", "--checkpoint", str(folder), "--checkpoint-every", "10", **words) as run:  # type: ignore[arg-type]
        end_of(run)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    other = TABLES.replace("np.zeros(7)", "np.zeros(8)")
    options = ("--checkpoint", str(folder), "--resume", str(folder))
    with running(tmp_path, other, "-n", "1", *options, **words) as run:  # type: ignore[arg-type]
        assert run.ends() == 2, run.story()
        assert "table 'b': the program has (8,), the checkpoint has (7,)" in run.err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_two_runs_do_not_write_to_one_folder(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    body = "begin()\nsay('there')\nwhile not there('end'):\n    time.sleep(0.01)\nsession.close()"
    with running(tmp_path, body, "-n", "1", "--checkpoint", str(folder), name="program.py") as run:
        run.hears("there\n")
        with running(tmp_path, body, "-n", "1", "--checkpoint", str(folder), name="program.py") as second:
            assert second.ends() == 2, second.story()
            assert f"another run writes to {str(folder)!r} now" in second.err
        (tmp_path / "end").touch()
        assert run.ends() == 0, run.story()


JOINED = """
session = syncline.connect()
tables = session.tables({"w": np.zeros(9)}, sync="bsp")
full = 0
while not (there("end") and session.iteration >= int(Path("end").read_text())):
    session.update("w", np.ones(9))
    session.clock()
    session.sync()
    full += session.rank == 0 and len(session.members) == 3
    if full == 200:
        Path("new").write_text(str(session.iteration + 2))
        os.replace("new", "end")
session.close()
"""


@pytest.mark.slow
def test_a_worker_of_another_host_writes_to_its_own_folder(tmp_path: Path) -> None:
    """Both folders keep only the last checkpoints; a joiner without a folder is not waited for."""
    here, there = tmp_path / "here", tmp_path / "there"
    options = ("--listen", "127.0.0.1:0", "--checkpoint", str(here), "--checkpoint-every", "20")
    with running(tmp_path, JOINED, "-n", "1", *options, name="program.py") as run:
        join = ("--join", run.hears(r"--join (\S+)").group(1), "-n", "1")
        with (
            running(tmp_path, JOINED, *join, "--checkpoint", str(there), name="program.py") as second,
            running(tmp_path, JOINED, *join, name="program.py") as third,
        ):
            assert [each.ends() for each in (second, third, run)] == [0, 0, 0], run.story()
    last = here / f"step-{whole_steps(here)[-1]:08}"
    assert len(whole_steps(here)) == 3
    assert len(json.loads((last / "checkpoint.json").read_text())["saved"]) == 2
    assert 3 <= len(list(there.glob("step-*"))) < 10, "a worker removes its old parts when it has heard of later ones"
