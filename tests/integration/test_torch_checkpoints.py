"""PyTorch programs that call nothing but connect, distribute and sampler: checkpoints, kills, and going on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from engine import running
from samples import sampled
from saved_runs import end_of, kill_all, whole_steps

MODEL = """
import hashlib, random
import torch
from torch import nn

wishes, every_epoch, loaders = eval(sys.argv[1]), sys.argv[2] == "epoch", int(sys.argv[3])
torch.set_num_threads(1)
session = syncline.connect()
torch.manual_seed(session.rank)
random.seed(session.rank)
dtype = torch.bfloat16 if wishes.pop("half", False) else torch.float32
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Dropout(0.2), nn.Linear(32, 3)).to(dtype)
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
session.distribute(model, optimizer, **wishes)
x = torch.randn(250, 10, generator=torch.Generator().manual_seed(1)).to(dtype)
data = torch.utils.data.TensorDataset(x, x[:, :3].argmax(1))
loader = torch.utils.data.DataLoader(data, 8, sampler=session.sampler(data), num_workers=loaders)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 48)
step = 0
for epoch in range(3):
    for a, b in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(a * (1 + 0.01 * random.random())), b).backward()
        optimizer.step()
        if not every_epoch:
            schedule.step()
        step += 1
        if session.rank == 0:
            say("step", epoch, step)
    if every_epoch:
        schedule.step()
    torch.rand(3)
session.close()
values = b"".join(each.detach().float().numpy().tobytes() for each in model.parameters())
say("digest", hashlib.sha256(values).hexdigest())
"""


def plain() -> nn.Sequential:
    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Dropout(0.2), nn.Linear(32, 3))


CASES: tuple[tuple[dict[str, object], str, int], ...] = (
    ({}, "step", 0),
    ({}, "epoch", 2),
    ({"mode": "changes"}, "step", 0),
    ({"mode": "changes", "half": True}, "epoch", 0),
    ({"rule": "momentum:0.05", "buffers": "local"}, "step", 0),
    ({"mode": "gradients", "codec": "topk:0.1", "reply_codec": "int8"}, "step", 0),
    ({"mode": "changes", "gate": "every:push=3,fetch=2"}, "step", 0),
    ({"mode": "changes", "buffers": "mean"}, "step", 0),
)


@pytest.mark.parametrize("case", sampled(range(len(CASES)), 0))
def test_a_run_that_is_killed_goes_on_as_if_it_had_not_been(case: int, tmp_path: Path) -> None:
    wishes, every, loaders = CASES[case]
    words = {"words": (repr(wishes), every, str(loaders)), "name": "program.py"}
    with running(tmp_path, MODEL, "-n", "2", **words) as run:  # type: ignore[arg-type]
        whole = end_of(run)
    folder, last = tmp_path / "saved", random.Random(case).randrange(20, 31)
    options = ["--checkpoint", str(folder), "--checkpoint-every", "4"]
    with running(tmp_path, MODEL, "-n", "2", *options, **words) as run:  # type: ignore[arg-type]
        run.hears(rf"step \d {last}\n")
        kill_all(run)
    step = whole_steps(folder)[-1]
    bare = plain().to(torch.bfloat16 if wishes.get("half") else torch.float32)
    bare.load_state_dict(load_file(folder / f"step-{step:08}" / "model.safetensors"))
    with running(tmp_path, MODEL, "-n", "2", "--resume", str(folder), **words) as run:  # type: ignore[arg-type]
        assert end_of(run) == whole
        assert f"resumes from step {step}" in run.err
        assert "step 0 " not in run.out or step < 16  # the first epoch has 16 steps
        assert f"step 2 {48 - step}\n" in run.out or step < 16


GAN = """
import hashlib, torch
from torch import nn

torch.set_num_threads(1)
session = syncline.connect()
torch.manual_seed(session.rank)
judge, maker = nn.Linear(4, 1), nn.Linear(2, 4)
of_judge, of_maker = (torch.optim.Adam(each.parameters(), 0.01) for each in (judge, maker))
session.distribute(judge, of_judge)
session.distribute(maker, of_maker, name="maker")
data = torch.utils.data.TensorDataset(torch.randn(128, 4, generator=torch.Generator().manual_seed(1)))
loader = session.split(data, batch_size=8, shuffle=True)
for epoch in range(3):
    for (real,) in loader:
        of_judge.zero_grad()
        fake = maker(torch.randn(8, 2))
        (judge(fake.detach()).mean() - judge(real).mean()).backward()
        of_judge.step()
        of_maker.zero_grad()
        (-judge(maker(torch.randn(8, 2))).mean()).backward()
        of_maker.step()
        if session.rank == 0:
            say("step", epoch)
session.close()
parts = [each.detach().numpy().tobytes() for model in (judge, maker) for each in model.parameters()]
say("digest", hashlib.sha256(b"".join(parts)).hexdigest())
"""


@pytest.mark.slow
def test_two_models_with_random_numbers_of_their_own(tmp_path: Path) -> None:
    with running(tmp_path, GAN, "-n", "2", name="program.py") as run:
        whole = end_of(run)
    folder = tmp_path / "saved"
    with running(
        tmp_path, GAN, "-n", "2", "--checkpoint", str(folder), "--checkpoint-every", "6", name="program.py"
    ) as run:
        run.hears("step 1\n", 3)
        kill_all(run)
    assert {path.name for path in folder.glob("step-*/model*")} == {"model.safetensors", "model-maker.safetensors"}
    with running(tmp_path, GAN, "-n", "2", "--resume", str(folder), name="program.py") as run:
        assert end_of(run) == whole


@pytest.mark.slow
def test_another_model_is_refused_by_the_run(tmp_path: Path) -> None:
    words = {"words": ("{}", "step", "0"), "name": "program.py"}
    folder = tmp_path / "saved"
    with running(tmp_path, MODEL, "-n", "1", "--checkpoint", str(folder), "--checkpoint-every", "8", **words) as run:  # type: ignore[arg-type]
        end_of(run)
    other = MODEL.replace("nn.Linear(32, 3)", "nn.Linear(32, 4)")
    with running(tmp_path, other, "-n", "1", "--resume", str(folder), **words) as run:  # type: ignore[arg-type]
        assert run.ends() == 2, run.story()
        assert "'4.weight' of model 'model': the program has (4, 32), the checkpoint has (3, 32)" in run.err
