"""Ready models and data, by name. Importing this package imports neither torch nor scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec

from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.rules import Rule
from syncline.sim.problem import Problem

_RECIPES: Mapping[str, str] = {"digits-mlp": "syncline.recipes.digits"}


def build(name: str, *, draw: Draw, workers: int, batch: int, optimizer: Rule | None = None) -> Problem:
    """The problem that a recipe's name stands for."""
    if name not in _RECIPES:
        raise UsageError("model.recipe", f"there is no {name!r}; one of: {', '.join(_RECIPES)}")
    for package, module in (("torch", "torch"), ("scikit-learn", "sklearn")):
        if find_spec(module) is None:
            raise UsageError(
                "model.recipe", f"{name!r} needs {package}; install it with: pip install 'syncline[recipes]'"
            )
    make: Callable[..., Problem] = import_module(_RECIPES[name]).problem
    return make(draw=draw, workers=workers, batch=batch, optimizer=optimizer)
