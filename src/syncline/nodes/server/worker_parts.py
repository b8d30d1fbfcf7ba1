"""The settings that all workers of a run share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from syncline.codecs import Codec, Dense
from syncline.draw import Draw
from syncline.gates import Always, Gate
from syncline.layout import Bucket, Layout, Values, Weigh, Within, within
from syncline.nodes.update_writer import bucket_codec


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """The parts and options that all workers of a run share."""

    layout: Layout
    draw: Draw
    codec: Codec = Dense()
    gate: Gate = Always()
    finite: bool = True
    """Whether the worker refuses to send NaN and infinity."""
    patience: float | None = None
    """Seconds after which an unanswered push is sent again; None: never, because no messages are lost."""
    within: Within = within
    """Gives the place of a piece in the update of its bucket."""
    reply: Codec | None = None
    """The codec for replies, which are then sent as changes; None: the parameters are sent complete."""
    of_means: bool = False
    """Whether answers are the mean of a round, not parameters."""
    of_changes: bool = False
    """Whether updates are changes of the parameters. If an answer has none, the worker keeps its own change."""
    recovers: bool = False
    """Whether servers can be lost, so that the worker keeps track of what its copies contain."""
    checks: bool = False
    """Whether to check encoded replies before decoding them, because they come from other processes."""
    first: Mapping[Bucket, Values] | None = None
    """The parameters that all workers have at the start without a message."""
    window: int | None = None
    """How many values a worker may push ahead of the answers of each server; None: as many as it has."""
    weigh: Weigh | None = None
    """Gives the number of bytes that a bucket takes on the wire; None: use the sizes of the codecs."""

    def weight(self, bucket: Bucket) -> tuple[int, int]:
        """The largest number of bytes on the wire of a bucket's update and of its parameters."""
        if self.weigh is not None:
            return self.weigh(bucket)
        pushed, pulled = (bucket_codec(each, self.layout, bucket) for each in (self.codec, self.reply or Dense()))
        return pushed.size(bucket.size), pulled.size(bucket.size)
