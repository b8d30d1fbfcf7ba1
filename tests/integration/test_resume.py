"""A run that is killed and taken up again: the parameters are those of a run that was not, to the bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine import QUIET, running

PROGRAM = """
import hashlib, os, signal, sys
import torch
from torch import nn
import syncline

path, mode = sys.argv[1], sys.argv[2]
saved_at, is_killed = int(sys.argv[3]), sys.argv[4] == "killed"
torch.set_num_threads(1)
session = syncline.connect()
torch.manual_seed(session.rank)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Linear(32, 3))
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 24)
rules = {"momentum": "momentum:0.05", "fasgd": "fasgd:0.005", "adam": "adam:0.01"}
codecs = {"topk": "topk:0.05", "terngrad": "terngrad:true", "qsgd": "qsgd:7"}
ways = {key: {"rule": rule} for key, rule in rules.items()}
ways |= {key: {"mode": "gradients", "codec": codec} for key, codec in codecs.items()}
session.distribute(model, optimizer, **ways.get(mode, {"mode": mode}))
x = torch.randn(256, 10, generator=torch.Generator().manual_seed(1))
data = torch.utils.data.TensorDataset(x, x[:, :3].argmax(1))
loader = torch.utils.data.DataLoader(data, 16, sampler=session.sampler(data))
mine = path if mode == "gradients" else f"{path}.{session.rank}"
step = 0
if os.path.exists(mine):
    saved = torch.load(mine, weights_only=True)
    session.load_state_dict(saved["session"])
    schedule.load_state_dict(saved["schedule"])
    step = saved["step"]
while step < 24:
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        schedule.step()
        step += 1
        if step == saved_at:
            if session.is_leader or mode != "gradients":
                state = {"session": session.state_dict(), "schedule": schedule.state_dict(), "step": step}
                torch.save(state, mine)
            session.barrier()
            if is_killed:
                os.kill(os.getpid(), signal.SIGKILL)
        if step == 24:
            break
session.close()
plain = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Linear(32, 3))
plain.load_state_dict(model.state_dict())
digest = hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in plain.parameters())).hexdigest()
print("digest", digest, flush=True)
"""


NEVER = 99


def run(
    directory: Path, name: str, mode: str, saved_at: int = NEVER, *, killed: bool = False, workers: int = 2
) -> tuple[int, str, str]:
    """Exit code, what was said, and the digest of the parameters, which is one for all.

    It takes up what is saved under this name; it saves after so many steps, and may be killed then.
    """
    program = directory / "program.py"
    program.write_text(PROGRAM)
    own = [directory / name, mode, saved_at, "killed" if killed else "lives"]
    words = ["run", "-n", workers, program, "--", *own]
    done = subprocess.run(
        [sys.executable, "-m", "syncline", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **QUIET},
    )
    said = done.stdout + done.stderr
    digests = {line.split()[-1] for line in done.stdout.splitlines() if "digest" in line}
    assert len(digests) <= 1, said
    return done.returncode, said, "".join(digests)


MODES = ("gradients", "fasgd", "topk", "terngrad", "qsgd", "changes", "momentum", "adam")


@pytest.mark.slow
def test_what_was_saved_on_the_way_leads_to_the_same_end(tmp_path: Path) -> None:
    code, said, whole = run(tmp_path, "state", "gradients", 11)
    assert code == 0, said
    assert whole
    code, said, resumed = run(tmp_path, "state", "gradients")
    assert code == 0, said
    assert resumed == whole


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_run_that_was_killed_goes_on_as_if_it_had_not_been(mode: str, tmp_path: Path) -> None:
    code, said, whole = run(tmp_path, "never", mode)
    assert code == 0, said
    assert whole
    code, said, nothing = run(tmp_path, "state", mode, 11, killed=True)
    assert (code, nothing) == (1, ""), said
    code, said, resumed = run(tmp_path, "state", mode)
    assert code == 0, said
    assert resumed == whole


@pytest.mark.slow
def test_another_number_of_workers_goes_on_and_says_so(tmp_path: Path) -> None:
    run(tmp_path, "state", "gradients", 11, killed=True)
    code, said, digest = run(tmp_path, "state", "gradients", workers=3)
    assert code == 0, said
    assert digest
    assert "2 workers saved this state; 3 workers continue from it" in said


LOST = """
import torch
from torch import nn

session = syncline.connect()
torch.manual_seed(0)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
session.distribute(model, optimizer)
steps = 0
try:
    while True:
        optimizer.zero_grad()
        model(torch.ones(4, 3)).sum().backward()
        optimizer.step()
        steps += 1
        if steps == 3:
            say("under way")
        time.sleep(0.01)
except syncline.RunError:
    state = session.state_dict()["models"]["model"]
    same = torch.equal(state["parameters"]["weight"], model.weight)
    say("saved", same and state["steps"] == steps and bool(state["optimizer"]["state"]))
"""


def test_the_state_can_be_saved_after_the_death_of_a_server(tmp_path: Path) -> None:
    """Under bsp the workers hold everything: parameters and the optimizer's state, as of the last complete step."""
    with running(tmp_path, LOST, "-n", "2", "--sync", "bsp") as run:
        run.hears("under way", 2)
        run.kill(run.server(0))
        assert run.ends() == 1, run.story()
        assert run.out.count("saved True") == 2, run.story()
