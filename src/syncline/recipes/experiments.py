"""Makes the problem that an experiment file describes."""

from __future__ import annotations

from syncline.draw import Draw
from syncline.recipes import build, build_layers
from syncline.sim.experiment import Experiment
from syncline.sim.problem import MadeUp, Problem


def problem_of(experiment: Experiment) -> Problem:
    """A recipe's model and data; or made-up updates for a list of layers or for a number of parameters."""
    choice, scenario = experiment.model, experiment.scenario
    draw = Draw(scenario.seed)
    if choice.layers is not None:
        return build_layers(choice.layers, draw)
    if choice.recipe is None:
        return MadeUp(choice.parameters, draw)
    return build(
        choice.recipe,
        draw=draw,
        workers=scenario.worker_numbers,
        batch=choice.batch,
        optimizer=choice.optimizer,
        data=choice.data,
        validation=choice.validation,
    )
