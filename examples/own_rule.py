"""A rule of your own, compared with two shipped rules in the simulator. Run: python examples/own_rule.py [PICTURE.png]

You can also run it cell by cell (`# %%`) in an editor that supports cells. With a file name, it draws the curves there.
"""

# %% A rule in ten lines: it limits the size of every value, and scales stale updates down.
import sys
from dataclasses import dataclass

import numpy as np

from syncline.draw import Draw
from syncline.recipes import build
from syncline.rules import Fasgd, Sasgd
from syncline.sim import Cluster, Mode, Scenario, UniformDispatch, simulate
from syncline.strategies.server import ServerStrategy
from syncline.sync import Asp


@dataclass(frozen=True)
class Trimmed:
    lr: float
    most: float = 0.05
    of_gradients = keeps = True

    def start(self, params):
        return {}

    def apply(self, params, update, memory, staleness, lr, work):
        np.clip(update, -self.most, self.most, out=work)
        work *= self.lr / max(1, staleness) ** 0.5
        params -= work


# %% Sixteen clients, drawn at random as in FRED: there is no clock, and an iteration is one client's update.
def curve(rule, seed=7):
    problem = build("digits-mlp", draw=Draw(seed), workers=16, batch=8)
    strategy = ServerStrategy(sync=(Asp(),), mode=Mode.RULE, rule=rule)
    scenario = Scenario(Cluster(workers=16), strategy, iterations=60, seed=seed, dispatch=UniformDispatch())
    return simulate(scenario, problem, every=160).curve


curves = {str(rule): curve(rule) for rule in (Sasgd(0.04), Fasgd(0.005), Trimmed(0.1))}

# %% Print the losses of each rule, its final accuracy, and how much it sent.
for name, points in curves.items():
    losses = " ".join(f"{point.loss:.2f}" for point in points)
    print(f"{name}: {losses}, accuracy {points[-1].accuracy:.1%}, {points[-1].bytes_pushed / 1e6:.1f} MB pushed")

# %% Draw the loss curves.
if len(sys.argv) > 1:
    from matplotlib.figure import Figure

    picture = Figure()
    axes = picture.subplots()
    for name, points in curves.items():
        axes.plot([point.iterations for point in points], [point.loss for point in points], label=name)
    axes.set_xlabel("updates")
    axes.set_ylabel("loss on the test data")
    axes.legend()
    picture.savefig(sys.argv[1])
