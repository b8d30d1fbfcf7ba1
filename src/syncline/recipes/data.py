"""Data: arrays of examples, and who sees which of them when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.layout import Values

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Dataset:
    """Examples to train on, and others to test on."""

    x_train: Values
    y_train: Labels
    x_test: Values
    y_test: Labels


def digits() -> Dataset:
    """scikit-learn's embedded digits: 1,797 images of 8x8, standardised; every fifth is kept for the test."""
    from sklearn.datasets import load_digits

    data: Any = load_digits()
    x = ((data.data - data.data.mean()) / data.data.std()).astype(np.float32)
    y = data.target.astype(np.int64)
    test = np.arange(len(y)) % 5 == 4
    return Dataset(x[~test], y[~test], x[test], y[test])


@dataclass
class Batches:
    """Deals batches so that one round of L workers with batch M is one batch of L * M in a single process.

    Every epoch is a permutation of all examples; worker w of L takes examples (i * L + w) * M and following.
    """

    examples: int
    workers: int
    batch: int
    draw: Draw
    _epochs: dict[int, npt.NDArray[np.int64]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.batch > self.examples:
            raise UsageError("model.batch", f"is {self.batch}, but there are only {self.examples} examples to train on")

    def indices(self, worker: int, iteration: int) -> npt.NDArray[np.int64]:
        start = (iteration * self.workers + worker) * self.batch
        places = np.arange(start, start + self.batch)
        epochs, within = np.divmod(places, self.examples)
        if epochs[0] == epochs[-1]:
            return self._epoch(int(epochs[0]))[within]
        return np.array([self._epoch(int(epoch))[place] for epoch, place in zip(epochs, within, strict=True)])

    def _epoch(self, number: int) -> npt.NDArray[np.int64]:
        if number not in self._epochs:
            if len(self._epochs) >= 64:
                del self._epochs[next(iter(self._epochs))]
            self._epochs[number] = self.draw.permutation(self.examples, "epoch", number)
        return self._epochs[number]
