"""The handovers of the move that is in progress, in case one of its servers dies (backed_shard.py)."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from syncline.effects import Effect, Event, Received, Send
from syncline.layout import Bucket, Payload
from syncline.messages import Handover, NodeId, View
from syncline.nodes.bucket_map import bucket_map_of


class SentHandovers:
    """What a server has handed over, until all servers of the move have what they shall hold."""

    def __init__(self) -> None:
        self._sent: dict[Bucket, tuple[Send, Handover]] = {}

    def keep(self, effects: Iterable[Effect]) -> None:
        """Keep the handovers among these effects; their payloads do not change."""
        for effect in effects:
            if type(effect) is Send and type(effect.message) is Handover:
                self._sent[effect.message.bucket] = (effect, effect.message)

    def returned(self, event: Event) -> None:
        """If this event is a handover, the server may have that bucket again."""
        if type(event) is Received and type(event.message) is Handover:
            self._sent.pop(event.message.bucket, None)

    def everything(self) -> list[tuple[Handover, Payload]]:
        return [(message, send.payload) for send, message in self._sent.values() if send.payload is not None]

    def forget(self, view: View) -> None:
        """Forget what has arrived, and what the view says is lost."""
        lost, since = {loss.bucket for loss in view.lost}, view.moving_since
        self._sent = {
            name: each for name, each in self._sent.items() if since and each[1].view >= since and name not in lost
        }

    def again(self, view: View, *, everything: bool) -> list[Send]:
        """The handovers whose receiver is another one in this view, or `everything`, for their present receivers."""
        holder, found = bucket_map_of(view.holders).holder, []
        for name, (send, message) in self._sent.items():
            to: NodeId = holder[name]
            if everything or to != send.to:
                found.append(Send(to, replace(message, view=view.view), send.payload))
        self.keep(found)
        return found
