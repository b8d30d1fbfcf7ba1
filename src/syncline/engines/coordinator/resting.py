"""Find out when the servers of a model are at rest: none has anything to send to another, and nothing is in flight.

The coordinator asks all servers, then asks all again. If each of them was at rest both times, and its node has handled
nothing in between, then all were at rest at the same moment: between the two rounds of questions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from syncline.engines.coordinator.participant import Participant, RunContext
from syncline.engines.net.control import AskRest, Rest

PAUSE_SECONDS = 0.02
"""Seconds between two rounds of questions."""


class Resting:
    """Asks the servers of one model until they are at rest."""

    def __init__(self, run: RunContext, servers: Mapping[int, Participant]) -> None:
        self._run = run
        self._servers = servers
        self._number = 0
        self._wanted: frozenset[int] = frozenset()
        self._answers: dict[int, Rest] = {}
        self._before: dict[int, int] | None = None
        """How many events each server had handled in the last round of questions, if all were at rest."""
        self._then: Callable[[], None] | None = None

    def ask(self, servers: Collection[int], then: Callable[[], None]) -> None:
        """Call `then` when these servers are at rest. Call this again if the servers of the model have changed."""
        if self._then is not None and self._wanted == frozenset(servers):
            return
        self._wanted, self._then = frozenset(servers), then
        self._begin()

    def stop(self) -> None:
        """A server is gone: the answers so far do not count."""
        self._then = None
        self._number += 1

    def _begin(self) -> None:
        self._number += 1
        self._answers = {}
        self._before = None
        self._ask(self._number)

    def _ask(self, number: int) -> None:
        if number != self._number:
            return  # the servers have changed since
        for each in self._wanted:
            if each in self._servers:
                self._run.out(self._servers[each].wire, AskRest(number))

    def heard(self, peer: Participant, rest: Rest) -> None:
        """A server has answered."""
        if rest.number != self._number or peer.id.number not in self._wanted:
            return
        self._answers[peer.id.number] = rest
        if len(self._answers) < len(self._wanted):
            return
        found = {number: each.handled for number, each in self._answers.items()}
        still = all(each.at_rest for each in self._answers.values())
        if still and found == self._before:
            then, self._then = self._then, None
            assert then is not None, "nobody asked"
            then()
            return
        self._answers, self._before = {}, found if still else None
        self._number += 1
        number = self._number
        self._run.later(PAUSE_SECONDS, lambda: self._ask(number))
