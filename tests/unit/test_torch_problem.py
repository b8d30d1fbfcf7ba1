"""Any torch model and data set as a problem."""

from __future__ import annotations

from math import isnan

import numpy as np
import pytest

from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.layout import Bucket
from syncline.recipes import build
from syncline.rules import Sgd
from syncline.sim import Cluster, Scenario, simulate
from syncline.strategies.server import ServerStrategy

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils.data import Dataset, TensorDataset  # noqa: E402

from syncline.recipes.torch_problem import TorchProblem  # noqa: E402


class Line(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """y = 2 x + 1, example by example."""

    def __init__(self, examples: int) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return self.examples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.tensor([index / self.examples])
        return x, 2 * x + 1


def line(**settings: object) -> TorchProblem:
    torch.manual_seed(0)
    model = nn.Linear(1, 1)
    mse = nn.functional.mse_loss
    return TorchProblem.of(model, Line(64), Line(16), workers=2, batch=8, loss=mse, optimizer=Sgd(0.3), **settings)  # type: ignore[arg-type]


def scenario(sync: str = "ssp:2", iterations: int = 60) -> Scenario:
    return Scenario(Cluster(workers=2), ServerStrategy(sync=sync), iterations)


def test_any_data_set_and_any_loss() -> None:
    found = simulate(scenario(), line())
    assert found.quality is not None
    assert found.quality.loss < 0.01
    assert isnan(found.quality.accuracy)
    assert found.report["accuracy"] is None


def test_tensors_give_the_same_model_as_their_examples() -> None:
    problem, inputs = line(), torch.arange(64).reshape(-1, 1) / 64
    torch.manual_seed(0)
    tensors = TorchProblem.of(
        nn.Linear(1, 1),
        TensorDataset(inputs, 2 * inputs + 1),
        Line(16),
        workers=2,
        batch=8,
        loss=nn.functional.mse_loss,
        optimizer=Sgd(0.3),
    )
    ours, theirs = (simulate(scenario("bsp", 10), each).model_vector() for each in (problem, tensors))
    assert np.array_equal(ours, theirs)


def test_a_problem_can_be_simulated_twice() -> None:
    for problem in (line(), build("digits-mlp", draw=Draw(0), workers=2, batch=8)):
        first, second = (simulate(scenario("asp", 5), problem).report for _ in range(2))
        assert first == second


def test_frozen_parameters_stay() -> None:
    model = nn.Sequential(nn.Linear(1, 4), nn.Linear(4, 1))
    model[0].requires_grad_(False)
    problem = TorchProblem.of(model, Line(8), Line(8), workers=1, batch=4, loss=nn.functional.mse_loss)
    assert [table.name for table in problem.layout.tables] == ["1.weight", "1.bias"]
    before = model[0].weight.clone()
    simulate(Scenario(Cluster(1), iterations=3), problem)
    assert torch.equal(model[0].weight, before)


def test_batch_normalisation_is_evaluated_with_its_running_mean() -> None:
    problem = TorchProblem.of(
        nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 1)),
        Line(8),
        Line(1),
        workers=1,
        batch=4,
        loss=nn.functional.mse_loss,
    )
    pieces = problem.start([Bucket(0, problem.layout.size)])
    assert problem.quality(pieces) == problem.quality(pieces)  # one example: in training mode torch refuses it


def test_what_cannot_be_simulated_is_refused() -> None:
    with pytest.raises(UsageError, match=r"model: 'weight' is torch\.float64 on cpu; use float32 on the CPU"):
        TorchProblem.of(nn.Linear(1, 1).double(), Line(8), Line(8), workers=1)
    with pytest.raises(UsageError, match="there are only 8 examples"):
        TorchProblem.of(nn.Linear(1, 1), Line(8), Line(8), workers=1)
