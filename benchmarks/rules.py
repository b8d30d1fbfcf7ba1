"""Measure the cost of each rule, relative to `sgd`, and of a simulated FASGD run, relative to its gradients alone.

    python benchmarks/rules.py [--values 25000000] [--rounds 7] [--turns 4000] [--report FILE.json]

Goals: `fasgd` takes at most 6 times as long as `sgd` on 25 million values. A run of 1,000 clients with batch size 128
under FRED's dispatch takes at most 1.5 times as long as its gradients alone.

Rules are applied as in a shard: block by block, in place, in buckets of 1 MiB. `sgd` is timed again before every other
rule, and the ratio is the median over the rounds. One row also computes the mean of v, as for gates. All times are the
CPU time of one thread, which other work on the machine disturbs least. The simulated run computes every gradient a
second time, right after the first, to measure the gradients alone under the same conditions.

The gradients are those of a 784-200-10 network in torch on synthetic images: as much work as with MNIST.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median
from time import thread_time
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from syncline.codecs import Dense
from syncline.draw import Draw
from syncline.gates import Always, Bandwidth, Gate
from syncline.layout import BUCKET_VALUES, Bucket, Layout, Values, buckets
from syncline.nodes.server.rule_application import RuleApplication
from syncline.nodes.server.shard_terms import WHOLE, ShardTerms
from syncline.recipes.data import Batches, Dataset
from syncline.recipes.torch_problem import TorchProblem
from syncline.rules import Fasgd, Rule
from syncline.sim import Cluster, Scenario, World
from syncline.sim.dispatch import UniformDispatch
from syncline.spec import parse
from syncline.strategies.server.strategy import Mode, ServerStrategy
from syncline.sync import Asp

SGD = "sgd:0.1"
RULES = (
    "add",
    "sasgd:0.1",
    "exponential:0.1",
    "momentum:0.1",
    "adam:0.001",
    "fasgd:0.005",
    "gated",
    "dc-asgd:0.1",
    "gap-aware:0.1",
)
MOST_OF_SGD = {"fasgd:0.005": 6.0, "gated": 6.0}
MOST_OF_GRADIENTS = 1.5
CLIENTS, BATCH, EXAMPLES = 1000, 128, 20_000


class Bench:
    """Applies one rule to the values, in buckets."""

    def __init__(self, rule: Rule, update: Values, gate: Gate) -> None:
        terms = ShardTerms(Asp(), rule, Dense(), Draw(0), gate=gate)
        layout = Layout.of([("w", update.shape)])
        cut = buckets(layout, [Bucket(0, update.size)], BUCKET_VALUES)
        self._held = [RuleApplication(np.zeros(each.size, np.float32), Dense(), terms) for each in cut]
        self._updates = [[update[each.start : each.stop]] for each in cut]
        self._reads = [held.params.copy() for held in self._held] if terms.copies else []

    def seconds(self) -> float:
        begun = thread_time()
        if self._reads:
            for held, update, read in zip(self._held, self._updates, self._reads, strict=True):
                held.apply_seen(update, WHOLE, 3, None, None, read)
        else:
            for held, update in zip(self._held, self._updates, strict=True):
                held.apply(update, WHOLE, 3, None)
        return thread_time() - begun


def measure_rules(values: int, rounds: int) -> list[dict[str, Any]]:
    update = np.random.default_rng(0).standard_normal(values, dtype=np.float32)
    plain = Bench(parse("rule", SGD), update, Always())
    plain.seconds()
    rows = []
    for word in RULES:
        rule: Rule = Fasgd(0.005) if word == "gated" else parse("rule", word)
        bench = Bench(rule, update, Bandwidth(push=1.0) if word == "gated" else Always())
        bench.seconds()
        pairs = [(plain.seconds(), bench.seconds()) for _ in range(rounds)]
        rows.append(
            {
                "rule": "fasgd:0.005, with the mean" if word == "gated" else word,
                "sgd_ms": 1e3 * median(sgd for sgd, _ in pairs),
                "ms": 1e3 * median(own for _, own in pairs),
                "ratio": median(own / sgd for sgd, own in pairs),
                "goal": MOST_OF_SGD.get(word),
            }
        )
    return rows


class Twice(TorchProblem):
    """Computes every gradient a second time, and records the time of the second."""

    def __init__(self, model: nn.Module, data: Dataset, batches: Batches, optimizer: Rule) -> None:
        super().__init__(model, data, batches, optimizer)
        self.seconds = 0.0

    def gradient(self, pieces: Any, worker: int, iteration: int) -> list[Values]:
        found = super().gradient(pieces, worker, iteration)
        begun = thread_time()
        super().gradient(pieces, worker, iteration)
        self.seconds += thread_time() - begun
        return found


def measure_simulation(turns: int) -> dict[str, Any]:
    """The seconds of the run without the second gradients, and of the second gradients alone."""
    rule, draw, random = Fasgd(0.005), Draw(0), np.random.default_rng(0)
    images = random.standard_normal((EXAMPLES, 1, 28, 28), dtype=np.float32)
    labels = random.integers(0, 10, EXAMPLES)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))
    data = Dataset(images, labels, images[:100], labels[:100])
    problem = Twice(model, data, Batches(EXAMPLES, CLIENTS, BATCH, draw), rule)
    strategy = ServerStrategy((Asp(),), mode=Mode.RULE, rule=rule)
    scenario = Scenario(Cluster(CLIENTS), strategy, max(1, turns // CLIENTS), 0, dispatch=UniformDispatch())
    world = World(scenario, problem)
    begun = thread_time()
    outcome = world.run()
    alone = problem.seconds
    whole = thread_time() - begun - alone
    return {
        "turns": outcome.updates,
        "seconds": whole,
        "gradients_alone": alone,
        "ratio": whole / alone,
        "goal": MOST_OF_GRADIENTS,
    }


def show(values: int, rows: list[dict[str, Any]], found: dict[str, Any]) -> None:
    table = Table("rule", "ms", "sgd ms", "rule / sgd", "goal", "met", title=f"{values:,} values, one update")
    for row in rows:
        goal = row["goal"]
        met = "" if goal is None else "yes" if row["ratio"] <= goal else "no"
        said = "" if goal is None else f"{goal:g}"
        table.add_row(row["rule"], f"{row['ms']:.1f}", f"{row['sgd_ms']:.1f}", f"{row['ratio']:.2f}", said, met)
    Console(width=120).print(table)
    print(
        f"fasgd, {CLIENTS:,} clients, batch {BATCH}, {found['turns']:,} updates: {found['seconds']:.1f} s; gradients "
        f"alone: {found['gradients_alone']:.1f} s; ratio {found['ratio']:.2f} (goal {found['goal']:g}, met: "
        f"{'yes' if found['ratio'] <= found['goal'] else 'no'})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--values", type=int, default=25_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--turns", type=int, default=4000, help="updates of the simulated run")
    parser.add_argument("--report", type=Path, help="write the results as JSON")
    arguments = parser.parse_args()
    rows = measure_rules(arguments.values, arguments.rounds)
    found = measure_simulation(arguments.turns)
    show(arguments.values, rows, found)
    if arguments.report:
        report = {"schema": 1, "values": arguments.values, "rules": rows, "simulation": found}
        arguments.report.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
