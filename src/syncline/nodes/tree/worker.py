"""The worker of the tree strategy: the worker of the server strategy, for which one node holds the whole model.

1. In every view the worker sees one server: the node that serves it.
2. Only the node that a request was sent to last can answer it.
3. If that node is lost, or has started again, the worker sends its unanswered requests again, to the node that serves
   it now.
"""

from __future__ import annotations

from msgspec.structs import replace

from syncline.effects import Effect, Received, Send
from syncline.layout import Bucket
from syncline.messages import Moved, Params, Taken, TreeMap, View
from syncline.nodes.server.worker import Worker
from syncline.nodes.server.worker_parts import WorkerParts


class TreeWorker(Worker):
    """A worker that is served by one node of a tree."""

    __slots__ = ("_all", "_incarnations")

    def __init__(
        self, number: int, incarnation: int, parts: WorkerParts, view: View, buckets: tuple[Bucket, ...]
    ) -> None:
        self._all = buckets
        self._incarnations = _incarnations(view)
        super().__init__(number, incarnation, parts, served(view, number, buckets))

    def _receive(self, event: Received, out: list[Effect]) -> None:
        if not self._is_late(event):
            super()._receive(event, out)

    def _adopt(self, view: View, out: list[Effect]) -> None:
        if view.view > self._view:
            super()._adopt(served(view, self.number, self._all), out)
            self._send_again(view, out)

    def _is_late(self, event: Received) -> bool:
        """Whether this is the answer of a node that served the worker before, to a request that went on since."""
        message = event.message
        if not isinstance(message, Params | Taken | Moved):
            return False
        awaited = self._awaited.get(message.bucket)
        return awaited is None or awaited.to != event.source

    def _send_again(self, view: View, out: list[Effect]) -> None:
        before, self._incarnations = self._incarnations, _incarnations(view)
        for bucket, send in list(self._awaited.items()):
            known = self._incarnations.get(send.to.number)
            if known is None or known != before.get(send.to.number, known):
                message = replace(send.message, view=self._view)
                again = self._awaited[bucket] = Send(self._holder[bucket], message, send.payload)
                out.append(again)


def served(view: View, worker: int, buckets: tuple[Bucket, ...]) -> View:
    """The view as this worker sees it: one server holds everything."""
    tree = view.topology
    assert isinstance(tree, TreeMap), "a worker of a tree needs a tree"
    return View(view.view, view.members, (*((),) * tree.node_of(worker), buckets))


def _incarnations(view: View) -> dict[int, int]:
    tree = view.topology
    assert isinstance(tree, TreeMap)
    return {each.number: each.incarnation for each in (*tree.leaving, *tree.nodes)}
