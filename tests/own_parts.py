"""Parts as a user would write them: a good sync model, and bad ones that the conformance suite must refuse."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.draw import Draw
from syncline.layout import Table, Values
from syncline.rules import UpdateOrigin
from syncline.sync import State


@dataclass(frozen=True)
class Patient:
    """No worker is more than `lead` iterations ahead of the slowest live member."""

    lead: int
    at_close = False

    def may_answer(self, state: State, worker: int, i: int, draw: Draw) -> bool:
        return i - state.slowest <= self.lead

    def may_close(self, state: State) -> bool:
        return state.missing == 0


@dataclass(frozen=True)
class Impatient:
    """No worker waits for the slowest for more than `seconds` seconds."""

    s: int
    seconds: float
    at_close = False

    @property
    def asks_again(self) -> float:
        return self.seconds

    def may_answer(self, state: State, worker: int, i: int, draw: Draw) -> bool:
        return i < state.v + self.s or state.waited >= self.seconds

    def may_close(self, state: State) -> bool:
        return state.missing == 0


@dataclass(frozen=True)
class Shy:
    """Answers the first pull of an iteration only after a moment, even if nobody else is there."""

    asks_again: object = 0.01

    def may_answer(self, state: State, worker: int, i: int, draw: Draw) -> bool:
        return i < 0 or state.waited > 0

    def may_close(self, state: State) -> bool:
        return state.missing == 0


@dataclass(frozen=True)
class Deaf(Patient):
    """Never closes a round, so a worker that waits, waits forever."""

    lead: int = 1

    def may_close(self, state: State) -> bool:
        return False


@dataclass(frozen=True)
class Hasty(Patient):
    """Lets every worker pass, and ignores its own bound."""

    lead: int = 1

    def may_answer(self, state: State, worker: int, i: int, draw: Draw) -> bool:
        return True


@dataclass
class Moody:
    """Answers by the number of times that it was asked, so it is not a pure function."""

    asked: int = 0
    at_close = False

    def may_answer(self, state: State, worker: int, i: int, draw: Draw) -> bool:
        self.asked += 1
        return self.asked % 3 == 0 or i < state.v

    def may_close(self, state: State) -> bool:
        return state.missing == 0


@dataclass(frozen=True)
class Count:
    """A rule that counts how often each value was updated, so it does not matter by what a round is divided."""

    of_gradients = True
    keeps = True

    def start(self, params: Values) -> dict[str, Values]:
        return {}

    def apply(
        self, params: Values, update: Values, memory: dict[str, Values], staleness: int, lr: float | None, work: Values
    ) -> None:
        params += update != 0


@dataclass(frozen=True)
class WorkerSum:
    """A rule that adds the number of the worker, plus one."""

    of_gradients = True
    keeps = True
    needs = ("worker",)

    def start(self, params: Values) -> dict[str, Values]:
        return {}

    def apply(
        self,
        params: Values,
        update: Values,
        memory: dict[str, Values],
        staleness: int,
        lr: float | None,
        work: Values,
        seen: UpdateOrigin | None = None,
    ) -> None:
        assert seen is not None
        assert seen.worker is not None
        params += seen.worker + 1


@dataclass(frozen=True)
class Normalised:
    """w -= alpha |w| / |g| g, with norms over the bucket or the table: LARS without momentum."""

    lr: float
    norms: str = "bucket-norms"
    of_gradients = True
    keeps = True

    @property
    def needs(self) -> tuple[str, ...]:
        return (self.norms,)

    def start(self, params: Values) -> dict[str, Values]:
        return {}

    def apply(
        self,
        params: Values,
        update: Values,
        memory: dict[str, Values],
        staleness: int,
        lr: float | None,
        work: Values,
        seen: UpdateOrigin | None = None,
    ) -> None:
        assert seen is not None
        assert seen.norms is not None
        trust = seen.norms.params / (seen.norms.update or 1.0)
        np.multiply(update, trust * (self.lr if lr is None else lr), work)
        params -= work


@dataclass(frozen=True)
class Recall(Count):
    """The same, but the servers must know what each worker has read."""

    needs = ("read",)

    def apply(
        self,
        params: Values,
        update: Values,
        memory: dict[str, Values],
        staleness: int,
        lr: float | None,
        work: Values,
        seen: UpdateOrigin | None = None,
    ) -> None:
        assert seen is not None
        assert seen.read is not None
        assert (seen.read <= params).all()
        params += update != 0


def by_turns(tables: tuple[Table, ...], servers: int) -> list[list[str]]:
    """A placement as a function: tables in turn."""
    return [[table.name for table in tables[server::servers]] for server in range(servers)]


def fails(tables: tuple[Table, ...], servers: int) -> list[list[str]]:
    """A placement with a mistake in it."""
    return [[tables[-1 - len(tables)].name]]


def forgets_to_return(tables: tuple[Table, ...], servers: int) -> None:
    """A placement that is not finished."""
