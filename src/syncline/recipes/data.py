"""Data sets, and which worker trains on which examples in which iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.layout import Values

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Dataset:
    """Training examples and test examples."""

    x_train: Values
    y_train: Labels
    x_test: Values
    y_test: Labels

    def validated(self, count: int | None) -> Dataset:
        """Use the last `count` training examples in place of the test data; None: use the test data."""
        if count is None:
            return self
        left = len(self.y_train) - count
        if not (count >= 1 and left >= 1):
            raise UsageError(
                "model.validation", f"must be at least 1 and less than {len(self.y_train):,} examples, not {count}"
            )
        return Dataset(self.x_train[:left], self.y_train[:left], self.x_train[left:], self.y_train[left:])


def digits() -> Dataset:
    """scikit-learn's embedded digits: 1,797 images of 8x8, standardised. Every fifth image is for the test."""
    pixels, y = _digits()
    x = ((pixels - pixels.mean()) / pixels.std()).astype(np.float32)
    test = np.arange(len(y)) % 5 == 4
    return Dataset(x[~test], y[~test], x[test], y[test])


def _digits() -> tuple[npt.NDArray[np.float64], Labels]:
    """Pixels and labels, read from scikit-learn's file; importing scikit-learn would take every worker seconds."""
    spec = find_spec("sklearn")
    for folder in (spec.submodule_search_locations if spec is not None else None) or ():
        path = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if path.is_file():
            rows = np.loadtxt(path, delimiter=",")
            return rows[:, :-1], rows[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits

    data: Any = load_digits()
    return data.data, data.target.astype(np.int64)


MNIST = "mnist.npz"


def mnist(folder: Path) -> Dataset:
    """MNIST from the file `mnist.npz` in this folder: images of 1x28x28, pixels from 0 to 1."""
    arrays = _mnist(folder, ("x_train", "y_train", "x_test", "y_test"))
    for key, array in arrays.items():
        shape = array.shape[1:]
        if shape != ((28, 28) if key.startswith("x") else ()) or array.dtype.kind not in "ui":
            raise UsageError("model.data", f"{folder / MNIST}: {key} holds {array.dtype} of shape {shape}; {_WANTED}")
    for part in ("train", "test"):
        if len(arrays[f"x_{part}"]) != len(arrays[f"y_{part}"]) or not (arrays[f"y_{part}"] < 10).all():
            raise UsageError("model.data", f"{folder / MNIST}: every image needs a label from 0 to 9; {_WANTED}")
    return Dataset(
        _images(arrays["x_train"]),
        arrays["y_train"].astype(np.int64),
        _images(arrays["x_test"]),
        arrays["y_test"].astype(np.int64),
    )


def mnist_examples(folder: Path) -> int:
    """The number of training examples in that file. This reads only the labels, so it is quick."""
    return len(_mnist(folder, ("y_train",))["y_train"])


_WANTED = "wanted: x_train and x_test, uint8 of n x 28 x 28; y_train and y_test, uint8 of n"


def _mnist(folder: Path, keys: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    path = folder / MNIST
    if not path.is_file():
        raise UsageError("model.data", f"there is no {MNIST} in {str(folder)!r}; put it there ({_WANTED})")
    try:
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in keys}
    except KeyError as error:
        raise UsageError("model.data", f"{path} is not MNIST: {error}; {_WANTED}") from None
    except (OSError, ValueError, TypeError, AttributeError, BadZipFile, EOFError) as error:
        raise UsageError("model.data", f"{path} cannot be read as a numpy archive: {error}; {_WANTED}") from None


def _images(pixels: npt.NDArray[Any]) -> Values:
    scaled: Values = pixels.astype(np.float32) / np.float32(255)
    return scaled.reshape(-1, 1, 28, 28)


@dataclass
class Batches:
    """Assigns examples to workers so that a round of L workers with batch M equals one batch of L * M in one process.

    Every epoch is a permutation of all examples. In iteration i, worker w takes M examples from (i * L + w) * M on.
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
