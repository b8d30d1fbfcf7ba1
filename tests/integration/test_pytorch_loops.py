"""Training loops that DDP accepts: several backward() for a step, several optimizers, no optimizer, values loaded late.

A session of one has the same hooks as a worker of a run. The scripts of tests/scripts run with two workers.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import LBFGS, SGD, AdamW, Optimizer

from engine import running
from little_model import MODES, PATHS, assert_same, distributed, little, loss_of, train
from samples import sampled
from syncline import Session, UsageError

ALL = [(mode, options) for mode, every in PATHS.items() for options in every]


def parameters(model: nn.Module) -> list[Tensor]:
    return [each.detach().clone() for each in model.parameters()]


# Several backward() before a step().


def backward_twice(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    for step in range(4):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        loss_of(model, step).backward()
        loss_of(model, step + 10).backward()
        optimizer.step()
    return parameters(model)


@pytest.mark.parametrize(
    ("mode", "options"),
    [each for each in ALL if each[0] != "rule"] + [("rule", {"overlap": False})],
)
def test_two_backwards_before_a_step_add_up(mode: str, options: dict[str, Any], session: Session) -> None:
    model, optimizer = distributed(session, mode, **options)
    plain = little()
    backward_twice(model, optimizer)
    session.wait()
    assert_same(parameters(model), backward_twice(plain, SGD(plain.parameters(), 0.1)))


@pytest.mark.parametrize("overlap", [True, False])
def test_a_gradient_that_the_program_keeps_stays_as_it_is(overlap: bool, session: Session) -> None:
    """Two losses, two gradients: the second exchange must not change what the program kept of the first."""
    model, optimizer = distributed(session, "gradients", overlap=overlap)
    plain = little()
    found = []
    for each, zero in ((model, optimizer.zero_grad), (plain, plain.zero_grad)):
        loss_of(each, 1).backward()
        kept = [parameter.grad for parameter in each.parameters()]
        zero()
        loss_of(each, 2).backward()
        found.append([*kept, *(parameter.grad for parameter in each.parameters())])
    assert_same(*found)


def test_a_rule_with_overlap_names_what_accepts_a_second_backward(session: Session) -> None:
    """Its gradients have been sent, and the servers would optimise twice."""
    model, optimizer = distributed(session, "rule")
    train(model, optimizer, 2)
    loss_of(model).backward()
    with pytest.raises(UsageError, match=r"distribute\(\.\.\., overlap=False\)"):
        loss_of(model).backward()


@pytest.mark.parametrize("mode", ["gradients", "changes"])
def test_lbfgs(mode: str, session: Session) -> None:
    model, plain = little(), little()
    found = []
    for each in (model, plain):
        optimizer = LBFGS(each.parameters(), max_iter=4, line_search_fn="strong_wolfe")
        if each is model:
            session.distribute(model, optimizer, **MODES[mode])

        def closure(each: nn.Module = each, optimizer: Optimizer = optimizer) -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(each)
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
        optimizer.step(closure=closure)  # type: ignore[call-arg]
        found.append(parameters(each))
    assert_same(*found)


def test_lbfgs_with_a_rule(session: Session) -> None:
    model = little()
    with pytest.raises(UsageError, match=r"LBFGS.*use mode='changes'"):
        session.distribute(model, LBFGS(model.parameters()), **MODES["rule"])


# Several optimizers.


def two(model: nn.Sequential) -> list[Optimizer]:
    return [SGD(model[0].parameters(), 0.1), AdamW([*model[2].parameters(), *model[4].parameters()], 0.01)]


def alternate(model: nn.Module, first: Optimizer, second: Optimizer) -> list[Tensor]:
    """Both step on one gradient, then each on its own, and one of them more often."""
    for step in range(6):
        first.zero_grad()
        second.zero_grad()
        loss_of(model, step).backward()
        first.step()
        if step % 2:
            second.step()
            second.zero_grad()
            loss_of(model, step + 10).backward()
            second.step()
    return parameters(model)


@pytest.mark.parametrize(("mode", "options"), [each for each in ALL if each[0] != "rule"])
def test_two_optimizers_of_a_model(mode: str, options: dict[str, Any], session: Session) -> None:
    model, plain = little(), little()
    optimizers = two(model)
    assert session.distribute(model, optimizers, **MODES[mode], **options) is optimizers
    alternate(model, *optimizers)
    session.wait()
    assert_same(parameters(model), alternate(plain, *two(plain)))


def test_the_state_of_two_optimizers(session: Session) -> None:
    found = []
    for saves in (False, True):
        model = little()
        optimizers = two(model)
        session.distribute(model, optimizers)
        for _ in range(2):
            alternate(model, *optimizers)
            if saves:
                session.load_state_dict(session.state_dict())
        found.append(parameters(model))
    assert_same(*found)


def test_a_rule_has_one_optimizer(session: Session) -> None:
    model = little()
    with pytest.raises(UsageError, match="mode 'rule' takes one optimizer, not 2"):
        session.distribute(model, two(model), **MODES["rule"])


def test_a_model_is_distributed_once(session: Session) -> None:
    model = little()
    first, second = two(model)
    session.distribute(model, first)
    with pytest.raises(UsageError, match=r"distribute\(model, \[first, second\]\)"):
        session.distribute(model, second)


class Wrapper:
    """An optimizer as accelerate and Lightning wrap it."""

    def __init__(self, optimizer: object) -> None:
        self.optimizer = optimizer


@pytest.mark.parametrize("mode", MODES)
def test_an_optimizer_in_a_wrapper(mode: str, session: Session) -> None:
    model, plain = little(), little()
    inner = SGD(model.parameters(), 0.1)
    wrapped = Wrapper(inner)
    assert session.distribute(model, wrapped, **MODES[mode]) is wrapped
    assert_same(train(model, inner), train(plain, SGD(plain.parameters(), 0.1)))


# Several models.


def test_models_are_named_by_order(session: Session) -> None:
    for name in (None, "model 3", None, None):
        session.distribute(little(), name=name)
    assert list(session.state_dict()["models"]) == ["model", "model 3", "model 2", "model 4"]
    with pytest.raises(UsageError, match="model 'model 3' is already distributed; give another name"):
        session.distribute(little(), name="model 3")


# Updates by hand.


def by_hand(model: nn.Module, optimizer: Optimizer | None = None) -> list[Tensor]:
    """As regression/main.py of pytorch/examples, with a stand-in that says when an iteration is complete."""
    for step in range(5):
        model.zero_grad()
        loss_of(model, step).backward()
        for each in model.parameters():
            each.data.add_(-0.1 * each.grad)
        if optimizer is not None:
            optimizer.step()
    return parameters(model)


@pytest.mark.parametrize(("mode", "options"), [each for each in ALL if each[0] != "rule"])
def test_updates_by_hand(mode: str, options: dict[str, Any], session: Session) -> None:
    model = little()
    optimizer = session.distribute(model, **MODES[mode], **options)
    by_hand(model, optimizer)
    session.wait()
    assert_same(parameters(model), by_hand(little()))
    assert session.state_dict()["models"]["model"]["steps"] == 5


def test_updates_by_hand_that_are_never_exchanged(session: Session) -> None:
    model = little()
    session.distribute(model, mode="changes")
    with pytest.raises(UsageError, match=r"changed and not exchanged.*call step\(\) of the optimizer that distribute"):
        by_hand(model)


def test_several_updates_by_hand_for_an_exchange(session: Session) -> None:
    model = little()
    optimizer = session.distribute(model, mode="changes")
    for _ in range(2):
        with session.no_sync():
            by_hand(model)
        optimizer.step()
    plain = little()
    by_hand(plain)
    assert_same(parameters(model), by_hand(plain))


def test_a_change_by_hand_of_a_parameter_without_a_gradient(session: Session) -> None:
    model, optimizer = distributed(session, "changes")
    optimizer.zero_grad()
    with torch.no_grad():
        model[0].weight.fill_(3.0)
    optimizer.step()
    assert torch.equal(model[0].weight, torch.full((8, 4), 3.0))


# Values that are loaded.


def other() -> nn.Sequential:
    model = little()
    train(model, SGD(model.parameters(), 1.0), 3)
    return model


@pytest.mark.parametrize(("mode", "options"), ALL)
def test_loading_other_values(mode: str, options: dict[str, Any], session: Session) -> None:
    """In the middle of training, as a framework does that resumes, and again."""
    model, optimizer = distributed(session, mode, **options)
    plain = little()
    theirs = SGD(plain.parameters(), 0.1)
    for seed in (0, 7):
        train(model, optimizer, 3)
        train(plain, theirs, 3)
        for each in (model, plain):
            each.load_state_dict(other().state_dict())
            each[0].load_state_dict(little()[0].state_dict())
        assert_same(parameters(model), parameters(plain))
        for each, owner in ((model, optimizer), (plain, theirs)):
            owner.zero_grad()
            loss_of(each, seed).backward()
            owner.step()
    train(model, optimizer)
    session.wait()
    assert_same(parameters(model), train(plain, theirs))


@pytest.mark.parametrize(("mode", "options"), ALL)
def test_values_that_are_loaded_for_an_evaluation(mode: str, options: dict[str, Any], session: Session) -> None:
    """Own values that are loaded again afterwards: other workers need not load anything."""
    model, optimizer = distributed(session, mode, **options)
    plain = little()
    theirs = SGD(plain.parameters(), 0.1)
    train(model, optimizer, 3)
    own = copy.deepcopy(model.state_dict())
    model.load_state_dict(other().state_dict())
    loss_of(model, 3)
    model.load_state_dict(own)
    agreed: list[str] = []
    session._models["model"].hooks.loads.agree = lambda: agreed.append("agreed")
    train(model, optimizer, 3)
    session.wait()
    train(plain, theirs, 3)
    assert_same(parameters(model), train(plain, theirs, 3))
    assert not agreed


@pytest.mark.parametrize(("mode", "options"), ALL)
def test_the_best_values_at_the_end(mode: str, options: dict[str, Any], session: Session) -> None:
    model, optimizer = distributed(session, mode, **options)
    train(model, optimizer, 3)
    best = other()
    model.load_state_dict(best.state_dict())
    assert_same(parameters(model), parameters(best))
    session.close()
    assert_same(parameters(model), parameters(best))
    model.load_state_dict(little().state_dict())
    assert_same(parameters(model), parameters(little()))


def test_what_a_rule_remembers_stays_when_values_are_loaded(session: Session) -> None:
    model, plain = little(), little()
    optimizer, theirs = SGD(model.parameters(), 0.1), SGD(plain.parameters(), 0.1, momentum=0.9)
    session.distribute(model, optimizer, rule="momentum:0.1")
    for each, owner in ((model, optimizer), (plain, theirs)):
        train(each, owner, 3)
        each.load_state_dict(other().state_dict())
    assert_same(train(model, optimizer, 3), train(plain, theirs, 3))


def test_loading_between_backward_and_step_with_a_rule(session: Session) -> None:
    model, _ = distributed(session, "rule")
    loss_of(model).backward()
    with pytest.raises(UsageError, match=r"between backward\(\) and step\(\)"):
        model.load_state_dict(other().state_dict())


@pytest.mark.parametrize("mode", MODES)
def test_parameters_that_a_load_replaces(mode: str, session: Session) -> None:
    model, optimizer = distributed(session, mode)
    model.load_state_dict(other().state_dict(), assign=True)
    with pytest.raises(UsageError, match=r"'0\.weight' was replaced by another one.*without assign=True"):
        train(model, optimizer, 1)


LOADS = """
import torch
from torch import nn
torch.set_num_threads(1)
session = syncline.connect()

def train(model, optimizer, steps):
    for step in range(steps):
        optimizer.zero_grad()
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(100 * session.rank + step))
        (model(x) - x).square().mean().backward()
        optimizer.step()

def distributed(**words):
    model = nn.Linear(4, 4)
    return model, session.distribute(model, torch.optim.SGD(model.parameters(), 0.1), **words)

def others(value):
    return {"weight": torch.full((4, 4), float(value)), "bias": torch.zeros(4)}

for words in ({"sync": "ssp:2"}, {"sync": "asp", "rule": "sgd:0.1"}, {"sync": "bsp", "mode": "changes"}):
    model, optimizer = distributed(**words)
    train(model, optimizer, 3 if words["sync"] == "bsp" else 3 + session.rank)
    model.load_state_dict(others(session.rank + 5))
    optimizer.param_groups[0]["lr"] = 0.0  # what was loaded stays
    train(model, optimizer, 1)
    assert model.weight.tolist() == [[5.0] * 4] * 4, (words, model.weight)

model, optimizer = distributed(mode="gradients")
train(model, optimizer, 2)
model.load_state_dict(others(5))
train(model, optimizer, 2)
say("the same")
if session.rank == 0:
    own = {name: each.clone() for name, each in model.state_dict().items()}
    model.load_state_dict(others(6))  # for an evaluation
    model.load_state_dict(own)
train(model, optimizer, 1)
model.load_state_dict(others(session.rank + 5))
train(model, optimizer, 2)
"""


def test_two_workers_load(tmp_path: Path) -> None:
    """All continue with the leader's values where servers hold them; otherwise all must have loaded the same."""
    # A lazy pull of worker 1's fourth step could wait for worker 0, which makes three and then waits for worker 1.
    with running(tmp_path, LOADS, "-n2", "--release", "soft") as run:
        assert run.ends() == 2, run.story()
        assert run.out.count("the same") == 2, run.story()
        assert len(re.findall(r"\[w\d\] .*loaded different values on the workers", run.out)) == 1, run.story()


LOADS_ALONE = (
    LOADS[: LOADS.index("for words in")]
    + """
model, optimizer = distributed()
train(model, optimizer, 1)
if session.rank == 0:
    model.load_state_dict(others(5))
    Path("loaded").touch()
    optimizer.param_groups[0]["lr"] = 0.0  # what was loaded stays
    train(model, optimizer, 2)
    assert model.weight.tolist() == [[5.0] * 4] * 4, model.weight
while not there("loaded"):
    time.sleep(0.01)
session.close()
say("closed", session.rank)
"""
)


@pytest.mark.parametrize("sync", sampled(["bsp", "ssp:2", "asp"]))
def test_a_worker_loads_and_the_other_closes_its_session(sync: str, tmp_path: Path) -> None:
    """The worker that has loaded goes on alone, and says whom it lacks and what to do."""
    with running(tmp_path, LOADS_ALONE, "-n2", "--sync", sync) as run:
        assert run.ends() == 0, run.story()
        assert sorted(re.findall(r"closed \d", run.out)) == ["closed 0", "closed 1"], run.story()
        said = "worker 0 has loaded values into model 'model' and goes on with them without worker 1"
        assert run.out.count(said) == 1, run.story()
        assert "call load_state_dict() on every worker" in run.out, run.story()
        assert "Traceback" not in run.out + run.err, run.story()


NEVER_LOADS = (
    LOADS[: LOADS.index("for words in")]
    + """
model, optimizer = distributed()
train(model, optimizer, 1)
if session.rank == 0:
    model.load_state_dict(others(5))
elif there("late"):
    while not there("go"): time.sleep(0.01)
    model.load_state_dict(others(5))
train(model, optimizer, 9)
"""
)


@pytest.mark.slow
@pytest.mark.parametrize("options", [("bsp", "shm"), ("ssp:2", "tcp")])
def test_a_worker_that_never_loads_ends_the_run(options: tuple[str, str], tmp_path: Path) -> None:
    """It waits for an update of the one that has loaded, which waits for it."""
    words = ("--sync", options[0], "--lane", options[1])
    with running(tmp_path, NEVER_LOADS, "-n2", *words, SYNCLINE_PATIENCE="1") as run:
        assert run.ends() == 2, run.story()
        assert "deadlock" in run.err, run.story()
        assert "worker 0 waits in load_state_dict of model 'model' for all workers, and worker 1 waits" in run.err


@pytest.mark.slow
def test_a_worker_that_loads_late_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "late").touch()
    with running(tmp_path, NEVER_LOADS, "-n2", SYNCLINE_PATIENCE="0.5") as run:
        run.hears("waiting for worker 1 for")
        run.touch("go")
        assert run.ends() == 0, run.story()
        assert "deadlock" not in run.err, run.story()
