"""A worker's requests to change the sync model, the topology or the nodes of the run."""

from __future__ import annotations

from msgspec.structs import replace

from syncline.engines.net.control import ChangeReply, ChangeRequest
from syncline.engines.worker.traffic import Traffic
from syncline.errors import RunError, UsageError
from syncline.messages import COORDINATOR

NO_COORDINATOR = "the coordinator is gone, and nothing can change without it"


class ChangeRequests:
    """Asks the coordinator for changes, one at a time."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._number = 0
        self._reply: ChangeReply | None = None

    def ask(self, request: ChangeRequest) -> None:
        """Ask for a change, and wait until it is made; `UsageError` if the request is invalid."""
        if COORDINATOR not in self._traffic:
            raise RunError(NO_COORDINATOR)
        self._number += 1
        self._reply = None
        self._traffic.send(COORDINATOR, replace(request, number=self._number))
        self._traffic.wait(self._is_answered)
        if self._reply is None:
            raise RunError(NO_COORDINATOR)
        raise_if_refused(self._reply)

    def _is_answered(self) -> bool:
        return self._reply is not None or COORDINATOR not in self._traffic

    def heard(self, reply: ChangeReply) -> None:
        if reply.number == self._number:  # else the program no longer waits for it
            self._reply = reply


def raise_if_refused(reply: ChangeReply) -> None:
    """Raise the error that this reply carries, if any."""
    if reply.option:
        raise UsageError(reply.option, reply.problem)
    if reply.problem:
        raise RunError(reply.problem)
