"""How many ranges a worker cuts the model into: what workers measure for it, and what they choose (range_count.py)."""

from __future__ import annotations

from math import inf

from syncline.effects import Idle, LinkUse
from syncline.nodes.range_count import best_parts, load

FIRST_UPDATES = 4
"""After this many updates, workers report their first measurement."""

UPDATES = 32
"""Later they report after every so many updates."""

SLACK = 0.25
"""A number of ranges stays as long as the cost model is off by at most this much of a range."""

MOST_PARTS = 1 << 16
"""The most ranges that a user can ask for."""


def still_fits(parts: int, found: float) -> bool:
    """Whether this number of ranges is right for this load, within the slack."""
    return parts - 1 - SLACK < found <= parts + SLACK


class SpeedMeasure:
    """Measures one worker: its updates per second of computing, and its bytes per second of sending.

    1. If the operating system says how much has arrived, and for how long the host's link was in use, that counts: a
       link is free before everything has arrived. In the first measurement it is the best step, since new connections
       have not reached their speed yet; later it is the mean.
    2. Otherwise it counts whole messages, and the time in which any of them was under way.
    """

    __slots__ = (
        *("_before", "_began", "_best", "_bytes", "_computed", "_is_first", "_sending", "_sent_since", "_under_way"),
        *("_use", "updates"),
    )

    def __init__(self) -> None:
        self._use: LinkUse | None = None
        """What the operating system has counted."""
        self._before = LinkUse(0, 0.0)
        """The same when it was last added to the measurement."""
        self._is_first = True
        self._began: float | None = None
        self._sent_since = 0.0
        self._under_way: dict[int, int] = {}
        """The bytes on the way to each peer."""
        self._reset()

    def _reset(self) -> None:
        self.updates = 0
        self._computed = 0.0
        self._sending = 0.0
        """How long anything was under way."""
        self._bytes = 0
        self._best = 0.0
        """The highest bandwidth of a step."""

    def begins(self, now: float) -> None:
        """A step begins."""
        self._began = now

    def ends(self, now: float) -> None:
        """A step has ended."""
        if self._began is not None:
            self._computed += now - self._began
            self.updates += 1
        if self._is_first and self._use is not None:
            self._note_step()

    def sends(self, peer: int, size: int, now: float) -> None:
        """This many bytes are sent to a peer."""
        if not self._under_way:
            self._sent_since = now
        self._under_way[peer] = self._under_way.get(peer, 0) + size

    def idle(self, idle: Idle, now: float) -> None:
        """The link to a peer is free."""
        peer = idle.peer.number
        if idle.shared:
            self.forget(peer)
        elif idle.use is None:
            self.arrived(peer, now)
        else:
            self._use = idle.use

    def arrived(self, peer: int, now: float) -> None:
        """Nothing is under way to this peer any more."""
        if peer in self._under_way:
            self._bytes += self._under_way.pop(peer)
            self._sending += now - self._sent_since
            self._sent_since = now

    def forget(self, peer: int) -> None:
        """What was under way to this peer does not count: the peer is gone, or there is no network between the two."""
        self._under_way.pop(peer, None)

    def take(self) -> tuple[float, float]:
        """The rate and the bandwidth since the last call; 0.0 for a bandwidth that was too high to measure."""
        rate = self.updates / self._computed if self._computed else 0.0
        self._count_use()
        bandwidth = self._best or (self._bytes / self._sending if self._sending else 0.0)
        self._is_first = False
        self._reset()
        return rate, bandwidth

    def _note_step(self) -> None:
        """Begin to measure the next step by itself."""
        self._count_use()
        if self._sending:
            self._best = max(self._best, self._bytes / self._sending)
        self._bytes, self._sending = 0, 0.0

    def _count_use(self) -> None:
        if self._use is not None:
            self._bytes = self._use.arrived - self._before.arrived
            self._sending = self._use.seconds - self._before.seconds
            self._before = self._use


class Chooser:
    """The leader's choice: collects the measurements of all workers."""

    def __init__(self, model_bytes: int, values: int, again: bool) -> None:
        """`again`: whether the number of ranges may change after the first choice."""
        self._model_bytes, self._values, self._again = model_bytes, values, again
        self._found: dict[int, tuple[float, float]] = {}
        self._chosen = False
        self._other = 0
        """How many times in a row the cost model did not fit the number of ranges."""

    def heard(self, worker: int, rate: float, bandwidth: float) -> None:
        self._found[worker] = (rate, bandwidth or inf)

    def choose(self, workers: set[int], parts: int) -> int | None:
        """The new number of ranges, once all these workers were measured; None: no change."""
        if not workers <= self._found.keys() or (self._chosen and not self._again):
            return None
        rows = [self._found[each] for each in workers]
        self._found.clear()
        rate, bandwidth = (sum(each) / len(rows) for each in zip(*rows, strict=True))
        found = load(rate, self._model_bytes, len(workers), bandwidth)
        fits = still_fits(parts, found) if self._chosen else best_parts(found, self._values) == parts
        self._other = 0 if fits else self._other + 1
        if fits or (self._chosen and self._other < 2):
            self._chosen = True
            return None
        self._chosen, self._other = True, 0
        return best_parts(found, self._values)
