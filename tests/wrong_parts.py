"""Gates, placements, sync models and codecs with one mistake each, as a user could make it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar

import numpy as np

from mistakes import wrong
from syncline.codecs import Codec
from syncline.errors import PeerError
from syncline.layout import Bucket, Layout, Table

# Gates.


@dataclass(frozen=True)
class EverySecond:
    """Right."""

    def sends(self, offer: Any) -> Any:
        return offer.i % 2 == 1

    def fetches(self, offer: Any) -> Any:
        return True


@wrong("gate", "`sends` must be True or False, not np.True_ of type bool; write bool(...) around it")
@dataclass(frozen=True)
class NumpyBool(EverySecond):
    def sends(self, offer: Any) -> Any:
        return np.bool_(True)


@wrong("gate", "`fetches` must be True or False, not None of type NoneType")
@dataclass(frozen=True)
class NoAnswer(EverySecond):
    def fetches(self, offer: Any) -> Any:
        pass


@wrong("gate", "`sends` must be True or False, not 1 of type int")
@dataclass(frozen=True)
class Number(EverySecond):
    def sends(self, offer: Any) -> Any:
        return offer.age


@wrong("gate", "asked twice about one offer it gave two answers")
@dataclass(frozen=True)
class CountingGate(EverySecond):
    asked: ClassVar[Iterable[int]] = count()

    def sends(self, offer: Any) -> Any:
        return next(iter(self.asked)) % 3 == 0


@wrong("gate", "it answered otherwise; it must keep nothing between calls")
@dataclass(frozen=True)
class LastSent(EverySecond):
    """Remembers when each worker sent last."""

    last: ClassVar[dict[int, int]] = {}

    def sends(self, offer: Any) -> Any:
        last = self.last.get(offer.worker, -9)
        if offer.i - last >= 2:
            self.last[offer.worker] = last = offer.i
        return offer.i == last


@wrong("gate", "it uses the shared generator of `random`")
@dataclass(frozen=True)
class RandomGate(EverySecond):
    def fetches(self, offer: Any) -> Any:
        return random.random() >= 0


@wrong("gate", "it changed an array of the offer; work on a copy")
@dataclass(frozen=True)
class WritesOffer(EverySecond):
    def sends(self, offer: Any) -> Any:
        if offer.update is not None:
            np.abs(offer.update, out=offer.update)
        return True


@wrong("gate", "`fetches` returned False, but the class says skips_fetches = False")
@dataclass(frozen=True)
class Liar(EverySecond):
    skips_fetches = False

    def fetches(self, offer: Any) -> Any:
        return offer.i > 2


@wrong("gate", "an offer without an update: `sends` raised TypeError")
@dataclass(frozen=True)
class NoneUpdate(EverySecond):
    def sends(self, offer: Any) -> Any:
        return float(np.abs(offer.update).max()) > 0


@wrong("gate", "an offer without parameters, as in mode 'gradients': `sends` raised")
@dataclass(frozen=True)
class NoParams(EverySecond):
    def sends(self, offer: Any) -> Any:
        return bool(offer.params.any())


@wrong("gate", "on_skip must be 'accumulate' or 'reapply', not 'forget'")
@dataclass(frozen=True)
class Forgetful(EverySecond):
    on_skip = "forget"


@wrong("gate", "per_table must be True or False, not 'yes'")
@dataclass(frozen=True)
class PerTableYes(EverySecond):
    per_table = "yes"


@wrong("gate", "does not have all methods of Gate")
@dataclass(frozen=True)
class OnlySends:
    def sends(self, offer: Any) -> Any:
        return True


# Placements.


def halves(layout: Layout, servers: int) -> list[Bucket]:
    cuts = [layout.size * part // servers for part in range(servers + 1)]
    return [Bucket(cuts[part], cuts[part + 1]) for part in range(servers)]


@dataclass(frozen=True)
class Ranges:
    """Right."""

    def place(self, layout: Layout, servers: int) -> Any:
        return [[piece] for piece in halves(layout, servers)]


@wrong("placement", "places values of table 't0' twice")
@dataclass(frozen=True)
class Overlap(Ranges):
    def place(self, layout: Layout, servers: int) -> Any:
        return [[Bucket(max(piece.start - 1, 0), piece.stop)] for piece in halves(layout, servers)]


@wrong("placement", "places values of table 't9' on no server")
@dataclass(frozen=True)
class Gap(Ranges):
    def place(self, layout: Layout, servers: int) -> Any:
        pieces = halves(layout, servers)
        return [[piece] for piece in [*pieces[:-1], Bucket(pieces[-1].start, layout.size - 1)]]


@wrong("placement", "ten tables on 1 server: TooMany() returns ranges for 2 servers, but the run has 1")
@dataclass(frozen=True)
class TooMany(Ranges):
    def place(self, layout: Layout, servers: int) -> Any:
        return [[piece] for piece in halves(layout, servers + 1)]


@wrong("placement", "gives server 1 of 2 no values")
@dataclass(frozen=True)
class OnlyFirst(Ranges):
    def place(self, layout: Layout, servers: int) -> Any:
        return [[Bucket(0, layout.size)], *[[] for _ in range(servers - 1)]]


@wrong("placement", "but the model has")
@dataclass(frozen=True)
class Outside(Ranges):
    def place(self, layout: Layout, servers: int) -> Any:
        pieces = halves(layout, servers)
        return [[piece] for piece in [*pieces[:-1], Bucket(pieces[-1].start, layout.size + 1)]]


@wrong("placement", "it must keep nothing between calls")
@dataclass(frozen=True)
class CallOrder(Ranges):
    """Gives the largest range to another server than in the last call with so many servers."""

    last: ClassVar[list[int]] = []

    def place(self, layout: Layout, servers: int) -> Any:
        turned = bool(self.last) and self.last[-1] > servers
        self.last.append(servers)
        pieces = [[piece] for piece in halves(layout, servers)]
        return pieces[::-1] if turned else pieces


@wrong("placement", "the same call gave another result; does it draw random numbers or count its calls?")
@dataclass(frozen=True)
class Turns(Ranges):
    calls: ClassVar[Iterable[int]] = count()

    def place(self, layout: Layout, servers: int) -> Any:
        pieces = [[piece] for piece in halves(layout, servers)]
        return pieces[::-1] if next(iter(self.calls)) // 7 % 2 else pieces


@wrong("placement", "it uses the shared generator of `random`")
@dataclass(frozen=True)
class Shuffles(Ranges):
    def place(self, layout: Layout, servers: int) -> Any:
        random.random()
        return super().place(layout, servers)


@wrong("placement", "gives values to a server that does not exist")
@dataclass(frozen=True)
class Lingers(Ranges):
    """Takes all numbers up to the highest for servers."""

    def replace(self, layout: Layout, held: Any, servers: Any) -> Any:
        return self.place(layout, max(servers) + 1)


@wrong("placement", "moved to servers 0, 1, 2, 3: LosesTheRest() gives server 3 of 4 no values")
@dataclass(frozen=True)
class LosesTheRest(Ranges):
    def replace(self, layout: Layout, held: Any, servers: Any) -> Any:
        return [held[server] if server < len(held) else () for server in range(max(servers) + 1)]


@wrong("placement", "must return the tables of each server")
def returns_nothing(tables: tuple[Table, ...], servers: int) -> None:
    pass


@wrong("placement", "raised IndexError")
def raises(tables: tuple[Table, ...], servers: int) -> Any:
    return [[tables[99].name]]


@wrong("placement", "names a table 'bias', which the model does not have")
def unknown_table(tables: tuple[Table, ...], servers: int) -> Any:
    return [["bias"] for _ in range(servers)]


# Sync models.


@dataclass(frozen=True)
class Ssp2:
    """Right."""

    def may_answer(self, state: Any, worker: int, i: int, draw: Any) -> Any:
        return i < state.v + 2

    def may_close(self, state: Any) -> Any:
        return state.missing == 0


@wrong("sync", "`may_answer` must be True or False, not np.True_ of type bool; write bool(...) around it")
@dataclass(frozen=True)
class NumpyAnswer(Ssp2):
    def may_answer(self, state: Any, worker: int, i: int, draw: Any) -> Any:
        return np.int64(i) < state.v + 2


@wrong("sync", "`may_close` must be True or False, not ")
@dataclass(frozen=True)
class TruthyClose(Ssp2):
    def may_close(self, state: Any) -> Any:
        return state.missing == 0 and state.pushed(state.v)


@wrong("sync", "`may_answer` gave two answers about one state")
@dataclass(frozen=True)
class Alternates(Ssp2):
    asked: ClassVar[Iterable[int]] = count()

    def may_answer(self, state: Any, worker: int, i: int, draw: Any) -> Any:
        return i < state.v or next(iter(self.asked)) % 2 == 0


@wrong("sync", "gave different answers; it must keep nothing between calls")
@dataclass(frozen=True)
class Remembers(Ssp2):
    """Keeps the furthest iteration of all runs."""

    furthest: ClassVar[list[int]] = [0]

    def may_answer(self, state: Any, worker: int, i: int, draw: Any) -> Any:
        self.furthest[0] = max(self.furthest[0], state.fastest)
        return i < state.v + (2 if self.furthest[0] - state.v < 5 else 0)


@wrong("sync", "it uses the shared generator of `numpy.random`")
@dataclass(frozen=True)
class RandomModel(Ssp2):
    def may_answer(self, state: Any, worker: int, i: int, draw: Any) -> Any:
        np.random.random()
        return i < state.v + 2


@wrong("sync", "`may_close` changes state.v; the state is read-only")
@dataclass(frozen=True)
class Meddles(Ssp2):
    def may_close(self, state: Any) -> Any:
        state.v = state.v
        return state.missing == 0


@wrong("sync", "`may_answer` uses state.params, which does not exist; the state has bound, fastest")
@dataclass(frozen=True)
class Peeks(Ssp2):
    def may_answer(self, state: Any, worker: int, i: int, draw: Any) -> Any:
        return i < state.v + 2 or bool(state.params.any())


@wrong("sync", "`may_answer` raised ZeroDivisionError")
@dataclass(frozen=True)
class Divides(Ssp2):
    def may_answer(self, state: Any, worker: int, i: int, draw: Any) -> Any:
        return i < state.v + 2 // state.v


@wrong("sync", "`next_bound` must be a whole number of at least 0, not 1.5")
@dataclass(frozen=True)
class HalfBound(Ssp2):
    def first_bound(self) -> int:
        return 2

    def next_bound(self, state: Any) -> Any:
        return 1.5


@wrong("sync", "asks_again must be 'push', a number of seconds above 0, or None, not 'later'")
@dataclass(frozen=True)
class AsksLater(Ssp2):
    asks_again = "later"


@wrong("sync", "these workers wait forever")
@dataclass(frozen=True)
class NeverAgain(Ssp2):
    """Asks again every second, and never says yes."""

    asks_again = 1.0

    def may_answer(self, state: Any, worker: int, i: int, draw: Any) -> Any:
        return False


# Codecs.


@dataclass(frozen=True)
class Copy(Codec):
    """The values themselves, as bytes: right."""

    def size(self, values: int) -> Any:
        return 4 * values

    def memory(self, values: int) -> Any:
        return {}

    def encode(self, update: Any, memory: Any, out: Any, chance: Any) -> Any:
        out.view(np.float32)[:] = update
        return out

    def check(self, payload: Any, values: int) -> None:
        if payload.dtype != np.uint8 or payload.shape != (4 * values,):
            raise PeerError("no payload")

    def decode(self, payload: Any, out: Any) -> Any:
        self.check(payload, out.size)
        out.view(np.uint8)[:] = payload
        return out


@wrong("codec", "with another bucket in between, an update gave other bytes")
@dataclass(frozen=True)
class SharedBuffer(Copy):
    """Keeps one buffer for all payloads of the same class."""

    kept: ClassVar[Any] = np.zeros(4 * 300_000, np.uint8)

    def encode(self, update: Any, memory: Any, out: Any, chance: Any) -> Any:
        payload = self.kept[: 4 * update.size]
        payload.view(np.float32)[:] = update
        return payload


@wrong("codec", "after saving and loading the memory, the bytes differ")
@dataclass(frozen=True)
class SharedScale(Copy):
    """Rounds as the last update, of any bucket, asked for. Starts again when the residual is 0."""

    fine: ClassVar[list[bool]] = [False]

    def memory(self, values: int) -> Any:
        return {"residual": np.zeros(values, np.float32)}

    def encode(self, update: Any, memory: Any, out: Any, chance: Any) -> Any:
        if not memory["residual"].any():
            self.fine[0] = False
        total = update + memory["residual"]
        sent = np.round(total, 2 if self.fine[0] else 1).astype(np.float32)
        memory["residual"][:] = np.nan_to_num(total - sent, nan=0, posinf=0, neginf=0)
        self.fine[0] = bool(update[0] > 0)
        out.view(np.float32)[:] = sent
        return out


@wrong("codec", "it uses the shared generator of `random`")
@dataclass(frozen=True)
class RandomCodec(Copy):
    def encode(self, update: Any, memory: Any, out: Any, chance: Any) -> Any:
        random.random()
        return super().encode(update, memory, out, chance)


@wrong("codec", "`size` must return a whole number, not ")
@dataclass(frozen=True)
class FloatSize(Copy):
    def size(self, values: int) -> Any:
        return np.int64(4 * values)


@wrong("codec", "exact must be True or False, not 'no'")
@dataclass(frozen=True)
class ExactNo(Copy):
    exact = "no"


@wrong("codec", "262,144 values")
@dataclass(frozen=True)
class SmallOnly(Copy):
    """Counts values in 16 bits."""

    def encode(self, update: Any, memory: Any, out: Any, chance: Any) -> Any:
        out[:] = 0
        out.view(np.float32)[: 1 << 16] = update[: 1 << 16]
        return out


@wrong("codec", "encoding the same update twice gave different bytes")
@dataclass(frozen=True)
class Clock(Copy):
    exact = False

    def size(self, values: int) -> Any:
        return 4 * values + 8

    def encode(self, update: Any, memory: Any, out: Any, chance: Any) -> Any:
        out[:8].view(np.int64)[0] = time.monotonic_ns()
        out[8:].view(np.float32)[:] = update
        return out

    def check(self, payload: Any, values: int) -> None:
        if payload.dtype != np.uint8 or payload.shape != (4 * values + 8,):
            raise PeerError("no payload")

    def decode(self, payload: Any, out: Any) -> Any:
        self.check(payload, out.size)
        out.view(np.uint8)[:] = payload[8:]
        return out
