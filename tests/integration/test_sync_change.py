"""The sync model changes while real processes train: no update is lost or applied twice, and bounds hold."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import lanes
from engine import Run, running
from samples import sampled
from syncline import UsageError, connect
from syncline.engines.net.keys import make_key_file
from syncline.sync import Asp, Ssp

LANES = ("shm", "tcp")
WORKERS, STEPS = 3, 40

slow = pytest.mark.slow

# Every update is in places of its own, and the servers count updates (own_parts.Count): what is lost is 0 in the end,
# and what is there twice is 2. Where the fast ones are to get ahead, worker 0 waits for them: for ever, if it were bsp.
# (The release is soft then: under lazy, a delayed worker would wait until worker 0 has finished that iteration too.)

LEDGER = f"""
session = syncline.connect()
rank, done = session.rank, 0
tables = session.tables({{"w": np.zeros(({WORKERS}, {STEPS}, 8))}})

def push():
    global done
    entry = np.zeros(({WORKERS}, {STEPS}, 8))
    entry[rank, done] = {WORKERS}
    session.update("w", entry)
    session.clock()
    session.sync()
    done += 1

def ahead(of, by):
    "Worker 0 stays where it is until the others are so far ahead."
    if rank == 0 and done == of:
        say("waits at", of)
        while not all(there(f"{{other}}-at-{{of + by}}") for other in range(1, {WORKERS})):
            time.sleep(0.01)
    Path(f"{{rank}}-at-{{done}}").touch()

def end():
    session.barrier()  # in mode changes, a worker that left would change the share of the others
    session.close()
    np.save(f"final{{rank}}.npy", tables["w"])
"""

OPTIONS = [f"-n{WORKERS}", "--servers", "2", "--bucket", "64B"]
COUNTS = ["--rule", "own_parts.Count"]
ALLOWED = ["--allow-parts", "own_parts"]


def finals(directory: Path) -> np.ndarray:
    """The result, which is the same for all workers."""
    found = [np.load(directory / f"final{rank}.npy") for rank in range(WORKERS)]
    assert all(np.array_equal(found[0], each) for each in found)
    return found[0]


def assert_each_update_once(directory: Path) -> None:
    final = finals(directory)
    assert np.array_equal(final, np.ones((WORKERS, STEPS, 8))), np.argwhere(final != 1)


def segments(directory: Path, server: int) -> list[list[lanes.Line]]:
    """What a server got and sent, cut where its model was changed."""
    trace = lanes.read_trace(directory / f"server{server}.csv")
    lanes.check_once(trace)
    found: list[list[lanes.Line]] = [[]]
    for line in trace:
        if line.kind == "change":
            found.append([])
        else:
            found[-1].append(line)
    return found


def furthest(segment: list[lanes.Line]) -> int:
    """How far ahead of V somebody was allowed to be."""
    return max(line.progress - line.v for line in segment if line.kind == "params" and line.v is not None)


BY_A_WORKER = (
    LEDGER
    + f"""
for _ in range({STEPS}):
    if rank == 1 and done == 8:
        session.change(sync="ssp:2", release="soft")
        say("now", session.settings["sync"])
    if rank == 1 and done == 10:
        for key, wrong in (("sync", "drop:9"), ("sync", ["bsp", "asp", "bsp"]), ("codec", "fp16"), ("sync", "soon")):
            try:
                session.change(**{{key: wrong}})
            except syncline.UsageError as error:
                say("refused", error)
    ahead(of=15, by=2)
    if rank == 2 and done == 25:
        session.change(sync=syncline.Bsp(), release="lazy")
    push()
end()
"""
)


@pytest.mark.parametrize("lane", LANES)
def test_bsp_then_ssp_then_bsp_in_the_middle_of_training(lane: str, tmp_path: Path) -> None:
    with running(tmp_path, BY_A_WORKER, *OPTIONS, *COUNTS, "--lane", lane, "--trace", str(tmp_path)) as run:
        assert run.ends() == 0, run.story()
        assert "[w1] now ssp:2" in run.out
        refused = re.findall(r"refused (\w+): (.*)", run.out)
        assert [option for option, _ in refused] == ["sync", "sync", "codec", "sync"], run.story()
        assert "'drop:9' waits for 9 of 3 workers; use drop:3 or a smaller number" in refused[0][1]
        assert "has 3 models for 2 servers" in refused[1][1]
        assert re.search(r"syncline: \S+ s: sync ssp:2, release soft from now on, as worker 1 asked\n", run.err)
        assert re.search(r"syncline: \S+ s: sync bsp, release lazy from now on, as worker 2 asked\n", run.err)
        assert run.err.count("\n") == 2, run.story()
    assert_each_update_once(tmp_path)
    for server in range(2):
        first, second, third = segments(tmp_path, server)
        lanes.check_stale(first, 0)
        lanes.check_stale(second, 2)
        lanes.check_stale(third, 0)
        assert furthest(second) == 1, "under ssp:2 somebody was ahead"
        assert any(line.kind == "params" for line in third)


@pytest.mark.parametrize("lane", LANES)
def test_in_mode_changes_a_round_that_was_open_is_divided_by_what_waited_in_it(lane: str, tmp_path: Path) -> None:
    """What waits for the close of a round counts as a round of its own when the model changes; all others are whole."""
    with running(tmp_path, BY_A_WORKER, *OPTIONS, "--lane", lane) as run:
        assert run.ends() == 0, run.story()
    final = finals(tmp_path)
    assert set(np.unique(final)) <= {WORKERS / count for count in (1, 2, 3)}, final
    odd = {int(i) for _, i, _ in np.argwhere(final != 1)}
    assert odd <= {8, *range(23, 28)}, f"only rounds that were open may be divided otherwise, not {odd}"


# From outside.

STEADY = (
    LEDGER
    + f"""
say("in", session.settings["mode"])
for _ in range({STEPS}):
    ahead(of=10, by=2)
    if rank == 0 and done == 20:
        say("goes on")
        while not there("stop"):
            time.sleep(0.01)
    push()
end()
"""
)


def tell(run: str, *words: str, directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "syncline", "tell", *([run] if run else []), *words]
    return subprocess.run(
        command, cwd=directory, env=lanes.environment(), capture_output=True, text=True, timeout=120, check=False
    )


def name_of(run: Run) -> str:
    return run.hears(r"to change the sync model while it trains: syncline tell (\w{8}) --sync ssp:3")[1]


@pytest.mark.parametrize("lane", sampled(LANES, "tcp"))
def test_a_run_is_changed_by_its_name(lane: str, tmp_path: Path) -> None:
    with running(tmp_path, STEADY, *OPTIONS, *COUNTS, "--lane", lane, "--trace", str(tmp_path), "-v") as run:
        run.hears("waits at 10")
        name = name_of(run)
        told = tell(name, "--sync", "ssp:2", "--release", "soft", directory=tmp_path)
        assert (told.returncode, told.stdout) == (0, "sync ssp:2, release soft: all servers have changed\n"), told
        run.hears("goes on")
        wrong = tell(name, "--sync", "drop:9", directory=tmp_path)
        assert (wrong.returncode, wrong.stdout) == (2, "")
        assert wrong.stderr == "syncline: --sync: 'drop:9' waits for 9 of 3 workers; use drop:3 or a smaller number\n"
        there = tell(name, "--model", "another", "--sync", "asp", directory=tmp_path)
        assert (there.returncode, there.stderr) == (
            2,
            "syncline: --model: this run has no model 'another'; it has model\n",
        )
        back = tell(f"@{full_name(run)}", "--sync", "bsp", "--sync", "bsp", "--release", "lazy", directory=tmp_path)
        assert back.returncode == 0, back
        run.touch("stop")
        assert run.ends() == 0, run.story()
        assert len(re.findall("from now on, as an operator asked", run.err)) == 2, run.story()
        over = tell(name, "--sync", "asp", directory=tmp_path)
        assert over.returncode == 1
        assert over.stderr.startswith(f"syncline: you have no run '{name}' on this host"), over
    assert_each_update_once(tmp_path)
    for server in range(2):
        first, second, third = segments(tmp_path, server)
        lanes.check_stale(first, 0)
        lanes.check_stale(second, 2)
        lanes.check_stale(third, 0)


def full_name(run: Run) -> str:
    """Under which name the coordinator listens, as the kernel has it."""
    short = name_of(run)
    found = re.findall(rf"@(syncline-run-{short}\w+)", Path("/proc/net/unix").read_text())
    return str(found[0])


SERVERS_COME = (
    LEDGER
    + f"""
for _ in range({STEPS}):
    if rank == 1 and done == 5:
        session.change(sync="ssp:2", release="soft")
        say("changed")
    if done == 10:
        while not session.any(there("joined")):
            session.clock()
            session.sync()
    ahead(of=25, by=2)
    push()
end()
"""
)


@pytest.mark.parametrize("lane", [LANES[0], pytest.param(LANES[1], marks=slow)])
def test_a_server_that_comes_later_has_the_model_that_is_in_force(lane: str, tmp_path: Path) -> None:
    options = [f"-n{WORKERS}", "--bucket", "64B", *COUNTS, "--lane", lane, "--listen", "127.0.0.1:0"]
    with running(tmp_path, SERVERS_COME, *options) as run:
        run.hears("changed")
        address = run.hears(r"--join (\S+) -n 1 PROGRAM")[1]
        with running(tmp_path, "", "--join", address, "-n", "0", "--servers", "1", "--lane", lane, *ALLOWED) as other:
            run.hears("server 1: has joined")
            run.touch("joined")
            assert run.ends() == 0, run.story()
            assert other.ends() == 0, other.story()
    assert_each_update_once(tmp_path)


COMES_BACK = """
begin()
while not there("stop"):
    if rank == 0 and session.iteration == 3:
        session.change(sync="ssp:2", release="soft")
        Path("changed").touch()
    if rank == 1 and session.incarnation == 0 and there("changed"):
        os.kill(os.getpid(), signal.SIGKILL)
    if session.incarnation:
        say("comes back to", session.settings["sync"], session.settings["release"])
        Path("stop").touch()
    step()
session.close()
"""


def test_a_worker_that_comes_later_knows_what_is_in_force(tmp_path: Path) -> None:
    with running(tmp_path, COMES_BACK, "-n2", "--restarts", "1") as run:
        assert run.ends() == 0, run.story()
        assert "[w1] comes back to ssp:2 soft" in run.out, run.story()


ONE_EACH = (
    LEDGER
    + f"""
for _ in range({STEPS}):
    if rank == 1 and done == 8:
        session.change(sync=["ssp:2", syncline.Bsp()], release="soft")
        say("now", session.settings["sync"], session.settings["release"])
    if rank == 2 and done == 20:
        say("too", session.settings["sync"], session.settings["release"])
    push()
end()
"""
)


def test_a_model_for_each_server(tmp_path: Path) -> None:
    with running(tmp_path, ONE_EACH, *OPTIONS, *COUNTS, "--trace", str(tmp_path)) as run:
        assert run.ends() == 0, run.story()
        assert "[w1] now ssp:2 bsp soft" in run.out
        assert "[w2] too ssp:2 bsp soft" in run.out
    assert_each_update_once(tmp_path)
    for server, bound in enumerate((2, 0)):
        first, second = segments(tmp_path, server)
        lanes.check_stale(first, 0)
        lanes.check_stale(second, bound)


# Who is let in.


@pytest.mark.slow
def test_with_a_key(tmp_path: Path) -> None:
    body = "begin()\nsteps_until('stop')\nsession.close()"
    options = ["-n2", "--listen", "127.0.0.1:0", "--key-file", "key"]
    make_key_file(tmp_path / "key")
    make_key_file(tmp_path / "another")
    with running(tmp_path, body, *options) as run:
        run.hears("under way", times=2)
        address = run.hears(r"--join (\S+) ")[1]
        told = tell(address, "--sync", "ssp:2", "--key-file", "key", directory=tmp_path)
        assert (told.returncode, told.stdout) == (0, "sync ssp:2: all servers have changed\n"), told
        other = tell(address, "--sync", "asp", "--key-file", "another", directory=tmp_path)
        assert other.returncode == 1
        assert "the two sides have different keys" in other.stderr, other
        none = tell(address, "--sync", "asp", directory=tmp_path)
        assert none.returncode == 1
        assert f"cannot reach the coordinator at {address}: the peer closed the connection" in none.stderr, none
        assert none.stderr.count("\n") == 1
        run.touch("stop")
        assert run.ends() == 0, run.story()
        assert "asp" not in run.err, run.story()


def test_an_address_that_lets_no_operator_in(tmp_path: Path) -> None:
    body = "begin()\nsay('at', os.environ['SYNCLINE_COORDINATOR'])\nsteps_until('stop')\nsession.close()"
    with running(tmp_path, body, "-n1", "--lane", "tcp") as run:
        run.hears("under way")
        address = f"127.0.0.1:{port_of(run)}"
        told = tell(address, "--sync", "ssp:2", directory=tmp_path)
        problem = "syncline: this run does not let processes join; start it with --listen\n"
        assert (told.returncode, told.stderr) == (1, problem), told
        run.touch("stop")
        assert run.ends() == 0, run.story()


def port_of(run: Run) -> int:
    """The port on which the coordinator listens, though not for others."""
    inodes = {
        match[1]
        for each in Path(f"/proc/{run.coordinator()}/fd").iterdir()
        if (match := re.fullmatch(r"socket:\[(\d+)\]", str(each.readlink())))
    }
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in inodes:
            return int(fields[1].partition(":")[2], 16)
    raise AssertionError(run.story())


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["127.0.0.1:9", "--sync", "bsp"], 1, "cannot reach the coordinator at 127.0.0.1:9: no process listens there"),
        (["@syncline-run-nobody", "--sync", "bsp"], 1, "cannot reach the coordinator at @syncline-run-nobody"),
        (["nobody", "--sync", "bsp"], 1, "you have no run 'nobody' on this host"),
        (["127.0.0.1:0", "--sync", "bsp"], 2, "RUN: '127.0.0.1:0' is not a usable address"),
        (["192.0.2.1:7070", "--sync", "bsp"], 2, "--key-file: 192.0.2.1 is not a loopback address"),
        (["nobody"], 2, "--sync: there is nothing to change; give --sync ssp:3, --release soft, or both"),
        (["nobody", "--sync", "sometimes"], 2, "--sync: 'sometimes' is unknown"),
        (["nobody", "--release", "hard"], 2, "--release: 'hard' is not one of lazy, soft"),
        (["nobody", "--codec", "fp16"], 2, "No such option: --codec"),
    ],
)
def test_invalid_requests_of_syncline_tell(words: list[str], code: int, said: str, tmp_path: Path) -> None:
    told = tell("", *words, directory=tmp_path)
    assert told.returncode == code, told
    assert told.stderr.startswith(f"syncline: {said}"), told
    assert told.stderr.count("\n") == 1


# What the mode does not allow, and a session of one.

GRADIENTS = """
import torch

session = syncline.connect()
torch.manual_seed(session.rank)
model = torch.nn.Linear(4, 2)
optimizer = session.distribute(model, torch.optim.SGD(model.parameters(), 0.1), WORDS)
for step in range(12):
    if session.rank == 1 and step == 4:
        try:
            session.change(sync="ssp:3", release="soft")
            say("changed to", session.settings["sync"])
        except syncline.UsageError as error:
            say("refused:", error)
    optimizer.zero_grad()
    model(torch.ones(3, 4)).square().mean().backward()
    optimizer.step()
session.close()
say("final", [each.tolist() for each in model.parameters()])
"""


ANSWERS = {
    "mode='gradients'": r"refused: sync: 'gradients' works only with bsp, not 'ssp:3', because every worker",
    "mode='changes'": "changed to ssp:3",
    "rule='sgd:0.1'": "changed to ssp:3",
}


@pytest.mark.parametrize(("words", "lane"), sampled(product(ANSWERS, LANES), ("mode='gradients'", "tcp")))
def test_a_model_of_pytorch(words: str, lane: str, tmp_path: Path) -> None:
    with running(tmp_path, GRADIENTS.replace("WORDS", words), "-n2", "--lane", lane) as run:
        assert run.ends() == 0, run.story()
        assert re.search(rf"\[w1\] {ANSWERS[words]}", run.out), run.story()
        finals = re.findall("final (.*)", run.out)
        assert len(finals) == 2, run.story()
        assert len(set(finals)) == 1, run.story()


def test_a_session_of_one() -> None:
    session = connect({})
    tables = session.tables({"w": np.zeros(3)})

    def step() -> None:
        session.update("w", np.ones(3))
        session.clock()
        session.sync()

    step()
    session.change(sync=Ssp(2))
    step()
    session.change(sync=["asp"], release="soft", name="model")
    step()
    assert (session.settings["sync"], session.settings["release"]) == ("asp", "soft")
    with pytest.raises(UsageError, match="sync: 'drop:2' waits for 2 of 1 workers"):
        session.change(sync="drop:2")
    with pytest.raises(UsageError, match="sync: has 2 models for 1 servers"):
        session.change(sync=[Asp(), Asp()])
    with pytest.raises(UsageError, match="name: this run has no model 'another'; it has model"):
        session.change(sync="bsp", name="another")
    step()
    session.close()
    assert np.array_equal(tables["w"], np.full(3, 4.0))


def test_before_anything_is_declared() -> None:
    session = connect({})
    with pytest.raises(UsageError, match="session: has no tables"):
        session.change(sync="bsp")
    session.leave()
