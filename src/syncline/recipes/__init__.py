"""Ready-made models with their data, by name. Importing this package imports neither torch nor scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.rules import Rule
from syncline.sim.problem import Layers, Problem


@dataclass(frozen=True)
class Recipe:
    """The function that makes a recipe, and what it needs."""

    module: str
    function: str
    values: int
    """The number of parameters of the network."""
    iterations: int
    """Of each of four workers: so many make a good model."""
    compare_batch: int
    """Examples of a worker's step in `--compare`."""
    compare_rounds: int
    """Rounds of all workers that `--compare` trains for, under each system."""
    examples: int | None = None
    """The number of training examples; None: the recipe reads its data from a folder that the user names."""

    @property
    def needs_data(self) -> bool:
        return self.examples is None


RECIPES: Mapping[str, Recipe] = {
    "digits-mlp": Recipe("syncline.recipes.digits", "mlp", 9_610, 1000, 32, 120, 1438),
    "digits-cnn": Recipe("syncline.recipes.digits", "cnn", 128_490, 300, 32, 80, 1438),
    "mnist-mlp": Recipe("syncline.recipes.mnist", "mlp", 159_010, 1000, 32, 200),
    "mnist-cnn": Recipe("syncline.recipes.mnist", "cnn", 102_390, 3000, 32, 100),
}

TO_TRAIN = "digits-mlp"
"""What `syncline train` trains, if no recipe is named."""

TO_COMPARE = "digits-cnn"
"""What `syncline train --compare` trains then: a step computes for some milliseconds, as on a larger job."""

_NEEDS = (("torch", "torch"), ("scikit-learn", "sklearn"))


def check(name: str, data: Path | None, option: str = "model.recipe", data_option: str = "model.data") -> int:
    """Check that a recipe can be made here, and return its number of training examples; errors name these options."""
    if name not in RECIPES:
        raise UsageError(option, f"there is no recipe {name!r}; choose one of: {', '.join(RECIPES)}")
    recipe = RECIPES[name]
    for package, module in _NEEDS[: 1 if recipe.needs_data else 2]:
        if find_spec(module) is None:
            raise UsageError(option, f"{name!r} needs {package}; install it with: pip install {package}")
    if data is not None and not recipe.needs_data:
        raise UsageError(data_option, f"cannot be used with {name!r}, which has its own data; remove it")
    if recipe.examples is not None:
        return recipe.examples
    if data is None:
        raise UsageError(data_option, f"{name!r} reads mnist.npz from a folder; name the folder here")
    return _examples(data, data_option)


def _examples(data: Path, option: str) -> int:
    from syncline.recipes.data import mnist_examples

    try:
        return mnist_examples(data)
    except UsageError as error:
        raise UsageError(option, error.problem) from None


def build(
    name: str,
    *,
    draw: Draw,
    workers: int,
    batch: int,
    optimizer: Rule | None = None,
    data: Path | None = None,
    validation: int | None = None,
) -> Problem:
    """Make the problem of a recipe; `validation`: how many training examples to keep back for validation."""
    check(name, data)
    recipe = RECIPES[name]
    make: Callable[..., Problem] = getattr(import_module(recipe.module), recipe.function)
    files = {"data": data} if recipe.needs_data else {}
    return make(draw=draw, workers=workers, batch=batch, optimizer=optimizer, validation=validation, **files)


def build_layers(name: str, draw: Draw, option: str = "model.layers") -> Layers:
    """Made-up updates for the layer list of this name, with each table's share of the computation."""
    from syncline.recipes.layer_lists import LAYER_LISTS
    from syncline.recipes.layer_shares import shares

    if name not in LAYER_LISTS:
        raise UsageError(option, f"there is no list of layers {name!r}; choose one of: {', '.join(LAYER_LISTS)}")
    return Layers(LAYER_LISTS[name](), shares(name), draw)
