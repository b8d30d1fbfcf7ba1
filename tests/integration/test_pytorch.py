"""What the PyTorch adapter promises: mistakes are refused by name, and everything else works.

Most of it needs no other worker: a session of one has the same hooks. The rest is in few runs of several checks each.
"""

from __future__ import annotations

import copy
import pickle
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, AdamW, Optimizer

from engine import Run, running
from little_model import MODES, PATHS, assert_same, distributed, little, loss_of, train
from syncline import NotFinite, Session, UsageError

slow = pytest.mark.slow
every_mode = pytest.mark.parametrize("mode", MODES)


# What is refused.


def test_a_model_without_trainable_parameters(session: Session) -> None:
    with pytest.raises(UsageError, match="no trainable parameters"):
        session.distribute(little().requires_grad_(False))
    with pytest.raises(UsageError, match="no trainable parameters"):
        session.distribute(nn.ReLU())


def test_what_is_no_model_and_what_is_no_optimizer_of_it(session: Session) -> None:
    model = little()
    with pytest.raises(UsageError, match=r"give a torch\.nn\.Module"):
        session.distribute([model])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"give a torch\.optim\.Optimizer"):
        session.distribute(model, 0.1)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="has no parameter of this model"):
        session.distribute(model, SGD(little().parameters(), 0.1))


def test_a_model_that_exchanges_gradients_itself(session: Session) -> None:
    with pytest.raises(UsageError, match="DataParallel exchanges gradients itself"):
        session.distribute(nn.DataParallel(little()))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(UsageError, match="DistributedDataParallel exchanges gradients itself"):
            session.distribute(DistributedDataParallel(little()))
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("mode", "options", "said"),
    [
        ("gradients", {"clip": 1.0}, "clip: is for mode 'rule'"),
        ("gradients", {"overlap": "forward"}, "overlap: 'forward' does not work in mode 'gradients'"),
        ("rule", {"overlap": "backward"}, "overlap: 'backward' is not a choice; use True, False or 'forward'"),
        ("rule", {"clip": 0.0}, "clip: must be above 0"),
        ("changes", {"buffers": "shared"}, "buffers: 'shared' is not a choice; use 'local', 'mean' or 'leader'"),
        ("changes", {"buffers": "mean", "overlap": "forward"}, "buffers: 'mean' does not work with overlap='forward'"),
        ("rule", {"buffers": "leader"}, "buffers: 'leader' does not work in mode 'rule'"),
        ("changes", {"on_nan": "panic"}, "on_nan: 'panic' is not one of stop, skip"),
        ("gradients", {"sync": "asp"}, "mode"),
        ("changes", {"sink": "bsp"}, "sink: is not a setting"),
    ],
)
def test_options_that_make_no_sense(mode: str, options: dict[str, Any], said: str, session: Session) -> None:
    with pytest.raises(UsageError, match=said):
        distributed(session, mode, **options)


@pytest.mark.parametrize("options", PATHS["changes"])
def test_what_the_program_does_to_a_parameter_counts_as_change(options: dict[str, Any], session: Session) -> None:
    model, optimizer = distributed(session, "changes", **options)
    plain = little()
    with_clipped(model, optimizer, session.wait)
    with_clipped(plain, SGD(plain.parameters(), 0.1))
    session.wait()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def with_clipped(model: nn.Module, optimizer: Optimizer, wait: Callable[[], None] = lambda: None) -> None:
    """Train with weights that are clipped after every step but the last, as for a Wasserstein GAN."""
    for step in range(5):
        if step:
            wait()
            with torch.no_grad():
                for each in model.parameters():
                    each.clamp_(-0.1, 0.1)
        train(model, optimizer, 1)


@pytest.mark.parametrize("gate", ["every:fetch=2", "every:push=2,fetch=2", "cached:2"])
@pytest.mark.parametrize("stage", [False, True])
def test_a_change_is_kept_where_nothing_is_fetched(gate: str, stage: bool, session: Session) -> None:
    model, optimizer = distributed(session, "changes", gate=gate, stage=stage)
    plain = little()
    expected = train(plain, SGD(plain.parameters(), 0.1), 4)
    for ours, theirs in zip(train(model, optimizer, 4), expected, strict=True):
        torch.testing.assert_close(ours, theirs)


@every_mode
def test_accumulation(mode: str, session: Session) -> None:
    model, optimizer = distributed(session, mode)
    plain = little()
    theirs = SGD(plain.parameters(), 0.1)
    for step in range(4):
        with session.no_sync():
            loss_of(model, step).backward()
            loss_of(model, step + 10).backward()
        for each in (model, plain):
            loss_of(each, step + 20).backward()
        for seed in (step, step + 10):
            loss_of(plain, seed).backward()
        for each in (optimizer, theirs):
            each.step()
            each.zero_grad()
    assert_same(list(model.parameters()), list(plain.parameters()))


# Gradients that are changed.


def test_a_gradient_that_is_changed_after_it_was_sent(session: Session) -> None:
    model, optimizer = distributed(session, "rule")
    with pytest.raises(UsageError, match=r"gradient of '[024]\.\w+' was changed after it was sent.*clip="):
        train(model, optimizer, between=lambda: nn.utils.clip_grad_norm_(model.parameters(), 0.01))


def test_a_gradient_that_is_replaced_after_it_was_sent(session: Session) -> None:
    model, optimizer = distributed(session, "rule")

    def replace() -> None:
        model[2].bias.grad = torch.zeros(8)

    with pytest.raises(UsageError, match=r"gradient of '2\.bias' was changed"):
        train(model, optimizer, between=replace)


@every_mode
def test_clipping(mode: str, session: Session) -> None:
    plain = little()
    expected = train(
        plain, SGD(plain.parameters(), 0.1), between=lambda: nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
    )
    if mode == "rule":
        model, optimizer = distributed(session, mode, clip=0.1)
        found = train(model, optimizer)
    else:
        model, optimizer = distributed(session, mode)
        found = train(model, optimizer, between=lambda: nn.utils.clip_grad_norm_(model.parameters(), 0.1))
    assert_same(found, expected)


@every_mode
def test_a_scaler_that_skips_a_step(mode: str, session: Session) -> None:
    model = little()
    optimizer = SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    session.distribute(model, optimizer, scaler=scaler, **MODES[mode])
    before = [each.detach().clone() for each in model.parameters()]
    for step, factor in enumerate((float("inf"), 1.0, 1.0)):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, step) * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        if step == 0:
            assert_same(list(model.parameters()), before)
    assert scaler.get_scale() == 32.0
    plain = little()
    theirs = SGD(plain.parameters(), 0.1)
    for step in (1, 2):
        theirs.zero_grad()
        loss_of(plain, step).backward()
        theirs.step()
    assert_same(list(model.parameters()), list(plain.parameters()))


# NaN.


@every_mode
def test_nan_stops_the_run_and_says_where(mode: str, session: Session) -> None:
    model, optimizer = distributed(session, mode)
    train(model, optimizer, 3)
    model[2].bias.register_hook(lambda gradient: gradient * float("nan"))
    with pytest.raises(NotFinite, match=r"worker 0, iteration 3: .* table '2\.bias' contains NaN") as caught:
        train(model, optimizer)
    assert (caught.value.worker, caught.value.progress, caught.value.table) == (0, 3, "2.bias")


@every_mode
@pytest.mark.parametrize("overlap", [True, False])
def test_nan_is_skipped_if_asked(mode: str, overlap: bool, session: Session) -> None:
    model, optimizer = distributed(session, mode, on_nan="skip", overlap=overlap)
    plain = little()
    theirs = SGD(plain.parameters(), 0.1)
    for step in range(4):
        optimizer.zero_grad()
        (loss_of(model, step) * (float("nan") if step == 1 else 1.0)).backward()
        optimizer.step()
        if step != 1:
            theirs.zero_grad()
            loss_of(plain, step).backward()
            theirs.step()
    assert_same(list(model.parameters()), list(plain.parameters()))


# Models that change.


@every_mode
@pytest.mark.parametrize("convert", [nn.Module.half, nn.Module.double, nn.Module.bfloat16])
def test_storage_that_is_replaced_is_found_at_the_next_step(
    mode: str, convert: Callable[[nn.Module], object], session: Session
) -> None:
    model, optimizer = distributed(session, mode)
    train(model, optimizer, 1)
    convert(model)
    with pytest.raises(UsageError, match=r"parameter '0\.weight' was replaced|the storage of parameter '0\.weight'"):
        train(model, optimizer, 1)


@every_mode
def test_a_parameter_that_is_replaced_is_found_at_the_next_step(mode: str, session: Session) -> None:
    model, optimizer = distributed(session, mode)
    train(model, optimizer, 1)
    model[2].bias = nn.Parameter(torch.zeros(8))
    with pytest.raises(UsageError, match=r"parameter '2\.bias' was replaced by another one"):
        train(model, optimizer, 1)


@pytest.mark.parametrize(("mode", "options"), [(mode, each) for mode in PATHS for each in PATHS[mode]])
def test_a_copy_of_the_model_is_free(mode: str, options: dict[str, Any], session: Session) -> None:
    model, optimizer = distributed(session, mode, **options)
    train(model, optimizer, 2)
    session.wait()
    copied = copy.deepcopy(model)
    pickled = pickle.loads(pickle.dumps(model))
    before = [each.detach().clone() for each in model.parameters()]
    for free in (copied, pickled):
        assert_same(list(free.parameters()), before)
        train(free, SGD(free.parameters(), 0.1), 2)
        free.load_state_dict(little().state_dict())
        assert_same(list(free.parameters()), list(little().parameters()))
    assert_same(list(model.parameters()), before)
    train(model, optimizer, 2)


class Reader(nn.Module):
    """Reads parameters of parts that do not run by themselves, and runs a part twice."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.attention = nn.MultiheadAttention(4, 2)
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(4)), nn.Parameter(torch.zeros(4))])
        self.twice = nn.Linear(4, 4)
        self.last = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention(x, x, x, need_weights=False)[0]
        x = self.twice(torch.tanh(self.twice(x)))
        return self.last(x * self.scales[0] + self.scales[1])


@pytest.mark.parametrize("stage", [False, True])
@pytest.mark.parametrize("mode", ["changes", "rule"])
def test_forward_waits_for_whatever_is_read(mode: str, stage: bool, session: Session) -> None:
    """Staged, a parameter that was not waited for is an old one."""
    model, plain = Reader(), Reader()
    optimizer, theirs = SGD(model.parameters(), 0.1), SGD(plain.parameters(), 0.1)
    session.distribute(model, optimizer, overlap="forward", stage=stage, **MODES[mode])
    train(model, optimizer)
    train(plain, theirs)
    saved = model.state_dict()
    for name, expected in plain.state_dict().items():
        torch.testing.assert_close(saved[name], expected)


class Shapes(nn.Module):
    """A tied, an unused and a frozen parameter."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.first = nn.Linear(4, 4, bias=False)
        self.tied = nn.Linear(4, 4, bias=False)
        self.tied.weight = self.first.weight
        self.unused = nn.Linear(4, 4)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.last = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.frozen(self.tied(torch.tanh(self.first(x)))))


@every_mode
def test_tied_unused_and_frozen_parameters(mode: str, session: Session) -> None:
    """Weight decay would change every parameter that gets a gradient, even of zeros."""
    plain = Shapes()
    model = copy.deepcopy(plain)
    decay = 0.0 if mode == "rule" else 0.1
    theirs = SGD(plain.parameters(), 0.1, weight_decay=decay)
    optimizer = SGD(model.parameters(), 0.1, weight_decay=decay)
    session.distribute(model, optimizer, **MODES[mode])
    for thaw in (False, True):
        for each in (plain, model):
            each.frozen.requires_grad_(thaw)
        assert_same(train(model, optimizer, 4), train(plain, theirs, 4))
    assert torch.equal(model.unused.weight, Shapes().unused.weight)
    assert model.tied.weight is model.first.weight
    assert model.unused.weight.grad is None
    parameters = session.state_dict()["models"]["model"]["parameters"]
    names = ["first.weight", *(f"{part}.{end}" for part in ("unused", "frozen", "last") for end in ("weight", "bias"))]
    assert list(parameters) == names


@pytest.mark.parametrize("codec", ["topk:0.1", "terngrad:true", "qsgd:7"])
def test_a_state_is_taken_up_again_and_again(codec: str, session: Session) -> None:
    """The residual and the random draws of a codec continue bit-identically."""
    found = []
    for name, saves in (("whole", False), ("cut", True)):
        model, optimizer = distributed(session, "gradients", codec=codec, name=name)
        for _ in range(3):
            trained = train(model, optimizer, 4)
            if saves:
                session.load_state_dict(session.state_dict())
        found.append(trained)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@every_mode
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_parameters_of_other_dtypes(mode: str, dtype: torch.dtype, session: Session) -> None:
    model, plain = little(dtype), little(dtype)
    optimizer = SGD(model.parameters(), 0.1)
    session.distribute(model, optimizer, **MODES[mode])
    found, expected = train(model, optimizer), train(plain, SGD(plain.parameters(), 0.1))
    assert {each.dtype for each in model.parameters()} == {dtype}
    rounding = 1e-5 if dtype is torch.float64 else 0.02
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=rounding, atol=rounding)


def test_the_master_of_a_bfloat16_parameter_takes_what_the_parameter_cannot_hold(session: Session) -> None:
    model = nn.Linear(1, 1, bias=False).to(torch.bfloat16)
    nn.init.ones_(model.weight)
    optimizer = session.distribute(model, rule="sgd:0.001")
    for _ in range(16):  # 0.999 rounds to 1 again
        model(torch.ones(1, 1, dtype=torch.bfloat16)).sum().backward()
        optimizer.step()
    assert model.weight.item() == pytest.approx(0.984, abs=0.004)


# Optimizers and schedulers.


@every_mode
def test_a_scheduler_holds_the_users_own_optimizer(mode: str, session: Session) -> None:
    plain = little()
    theirs = SGD(plain.parameters(), 0.1)
    model = little()
    own = SGD(model.parameters(), 0.1)
    assert session.distribute(model, own, **MODES[mode]) is own
    for each, optimizer in ((model, own), (plain, theirs)):
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        for step in range(6):
            optimizer.zero_grad()
            loss_of(each, step).backward()
            optimizer.step()
            scheduler.step()
        assert scheduler.get_last_lr() == [0.1 / 64]
    assert_same(list(model.parameters()), list(plain.parameters()))


def test_a_scheduler_of_the_optimizer_that_distribute_returns(session: Session) -> None:
    model, plain = little(), little()
    theirs = SGD(plain.parameters(), 0.1)
    ours = session.distribute(model, rule="sgd:0.1")
    for each, optimizer in ((model, ours), (plain, theirs)):
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
        for step in range(6):
            optimizer.zero_grad()
            loss_of(each, step).backward()
            optimizer.step()
            scheduler.step()
    assert_same(list(model.parameters()), list(plain.parameters()))


@pytest.mark.parametrize("kind", [AdamW, torch.optim.Adagrad, torch.optim.RMSprop, torch.optim.NAdam])
@pytest.mark.parametrize("mode", ["gradients", "changes"])
def test_any_optimizer(mode: str, kind: Any, session: Session) -> None:
    model, plain = little(), little()
    optimizer = kind(model.parameters(), lr=0.01)
    session.distribute(model, optimizer, **MODES[mode])
    assert_same(train(model, optimizer), train(plain, kind(plain.parameters(), lr=0.01)))


@pytest.mark.parametrize("mode", ["gradients", "changes"])
def test_a_closure(mode: str, session: Session) -> None:
    """One that is called once a step is like a loop without it, wherever the step comes after its gradients."""
    model, optimizer = distributed(session, mode)
    plain = little()
    theirs = SGD(plain.parameters(), 0.1)

    def closure(each: nn.Module, owner: Optimizer, step: int) -> Tensor:
        owner.zero_grad()
        loss = loss_of(each, step)
        loss.backward()
        return loss

    for step in range(3):
        optimizer.step(lambda step=step: closure(model, optimizer, step))
        theirs.step(lambda step=step: closure(plain, theirs, step))
    assert_same(list(model.parameters()), list(plain.parameters()))


def test_a_rule_takes_no_closure(session: Session) -> None:
    model, optimizer = distributed(session, "rule")
    for call in (lambda: optimizer.step(lambda: 0.0), lambda: optimizer.step(closure=lambda: 0.0)):
        with pytest.raises(
            UsageError, match=r"accepts no closure in mode 'rule'; call loss\.backward\(\), then step\(\)"
        ):
            call()
    train(model, optimizer)


# The end.


@every_mode
def test_a_model_outlives_its_session(mode: str, session: Session) -> None:
    model, optimizer = distributed(session, mode)
    found = train(model, optimizer)
    session.close()
    assert_same(list(model.parameters()), found)
    train(model, SGD(model.parameters(), 0.1))
    copy.deepcopy(model).load_state_dict(model.state_dict())


def test_sigterm_means_what_it_did_once_the_session_is_over(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    distributed(session, "gradients")
    heeds = signal.getsignal(signal.SIGTERM)
    assert callable(heeds)
    raised: list[int] = []
    monkeypatch.setattr(signal, "raise_signal", raised.append)
    session.leave()
    heeds(signal.SIGTERM, None)
    assert raised == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


# Runs of several workers.

PROGRAM = """
import torch
from torch import nn
torch.set_num_threads(1)
session = syncline.connect()
rank = session.rank
torch.manual_seed(rank)  # all go on with the leader's

def little(hidden=8):
    return nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 8), nn.Tanh(), nn.Linear(8, 2))

def loss_of(model, step):
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(100 * rank + step))
    return (model(x) - x[:, :2]).square().mean()

def distributed(model, **words):
    return session.distribute(model, torch.optim.SGD(model.parameters(), 0.1), bucket="64B", **words)

def train(model, optimizer, steps, at=lambda step: None):
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        at(step)
        loss.backward()
        optimizer.step()

def bits(model):
    return torch.cat([each.detach().flatten() for each in model.parameters()]).numpy().tobytes().hex()[-32:]
"""

AGREE = f"""
PATHS = {PATHS!r}
MODES = {MODES!r}
for mode, paths in PATHS.items():
    for number, options in enumerate(paths):
        torch.manual_seed(rank)
        model = little()
        optimizer = distributed(model, name=f"{{mode}} {{number}}", **MODES[mode], **options)
        train(model, optimizer, 8)
        session.wait()
        say("bits", mode, number, bits(model))
"""


def words(mode: str) -> str:
    """What asks for a mode, as it stands in a call."""
    return ", ".join(f"{key}={word!r}" for key, word in MODES[mode].items())


def assert_reported_once(run: Run, worker: int, said: str) -> None:
    """Only the one who failed says where, and the run's last line is about it."""
    assert re.findall(rf"\[(w\d)\] .*{said}", run.out + run.err) == [f"w{worker}"], run.story()
    assert run.err.splitlines()[-1].startswith(f"syncline: w{worker} ended with exit code 1"), run.story()


def test_every_path_comes_to_the_same_bits(tmp_path: Path) -> None:
    """Direct or staged, with overlap or without: under bsp that is a matter of speed alone."""
    with running(tmp_path, PROGRAM + AGREE, "-n2") as run:
        assert run.ends() == 0, run.story()
        for mode, paths in PATHS.items():
            found = re.findall(rf"\] bits {mode} (\d) (\w+)", run.out)
            assert len(found) == 2 * len(paths), run.story()
            assert len({bits for _, bits in found}) == 1, f"{mode}, {paths}\n{run.story()}"


LEADERS = """
class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("seen", torch.tensor([rank + 3]))
        self.register_buffer("mask", torch.tensor([rank == 0, True]))
        self.norm.running_mean.fill_(rank + 0.5)

    def forward(self, x):
        return self.norm(self.layer(x))

model = Counting()
optimizer = distributed(model)
assert model.seen.tolist() == [3] and model.mask.tolist() == [True, True]
assert model.norm.running_mean.tolist() == [0.5, 0.5]
weight = model.layer.weight.detach()
assert torch.equal(session.mean(weight), weight)
assert session.mean(torch.tensor([rank, 3])).tolist() == [0.5, 3.0]

late = little()
optimizer = distributed(late, name="skip", mode="gradients", on_nan="skip")
before = bits(late)
(loss_of(late, 0) * (float("nan") if rank else 1.0)).backward()
optimizer.step()
assert bits(late) == before, "one has NaN: all skip"
optimizer.zero_grad()
loss_of(late, 1).backward()
optimizer.step()
say("skipped", bits(late))

model = little()
optimizer = distributed(model, name="stop", WORDS)
if rank == 1:
    model[2].bias.register_hook(lambda gradient: gradient * (float("nan") if model.at == 3 else 1.0))
for model.at in range(10):
    optimizer.zero_grad()
    loss_of(model, model.at).backward()
    optimizer.step()
"""


@pytest.mark.parametrize("mode", ["gradients", *(pytest.param(each, marks=slow) for each in ("changes", "rule"))])
def test_all_start_with_the_leaders_and_nan_ends_the_run(mode: str, tmp_path: Path) -> None:
    with running(tmp_path, PROGRAM + LEADERS.replace("WORDS", words(mode)), "-n2") as run:
        assert run.ends() == 1, run.story()
        assert len(set(re.findall(r"skipped (\w+)", run.out))) == 1, run.story()
        assert_reported_once(run, 1, r"worker 1, iteration 3: the update of table '2\.bias' contains NaN")
        assert "Traceback" not in run.out, run.story()


LAYOUTS = """
model = little(8 + rank)
optimizer = distributed(model)
train(model, optimizer, 3)
"""


@slow
def test_models_that_differ(tmp_path: Path) -> None:
    """The second worker is refused, and the first one is told."""
    with running(tmp_path, PROGRAM + LAYOUTS, "-n2") as run:
        assert run.ends() == 2, run.story()
        last = run.err.splitlines()[-1]
        assert re.search(r"table 0: 0\.weight \((8|9), 4\) here, 0\.weight \((8|9), 4\) there", last), run.story()


DEATHS = """
def die(gradient):
    if rank == 2 and died.at == 5:
        os.kill(os.getpid(), signal.SIGKILL)  # some of this step's gradients have left, others have not

def at(step):
    died.at = step
    if rank == 1 and step == 10:
        os.kill(os.getpid(), signal.SIGTERM)

model = died = little()
optimizer = distributed(model, WORDS)
model[0].weight.register_hook(die)
train(model, optimizer, 15, at)
session.close()
say("done")
"""


@pytest.mark.parametrize("mode", ["gradients", *(pytest.param(each, marks=slow) for each in ("changes", "rule"))])
def test_one_is_killed_and_one_is_asked_to_go(mode: str, tmp_path: Path) -> None:
    with running(tmp_path, PROGRAM + DEATHS.replace("WORDS", words(mode)), "-n3") as run:
        assert run.ends() == 0, run.story()
        assert re.search(r"w2 ended by signal 9 \(SIGKILL\)", run.err), run.story()
        assert "worker 1 received SIGTERM and leaves after this step" in run.out + run.err, run.story()
        assert run.out.count("done") == 1, run.story()
        assert "Traceback" not in run.out + run.err, run.story()


FAILS = """
model = little()
optimizer = distributed(model)

def at(step):
    if rank == 1 and step == 3:
        raise ValueError("by mistake")

train(model, optimizer, 1000, at)
"""


@slow
def test_an_exception_in_one_worker(tmp_path: Path) -> None:
    with running(tmp_path, PROGRAM + FAILS, "-n2") as run:
        assert run.ends() == 1, run.story()
        assert_reported_once(run, 1, "ValueError: by mistake")
        assert run.out.count("Traceback") == 1, run.story()
