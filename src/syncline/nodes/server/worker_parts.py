"""What all workers of a run have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from syncline.codecs import Codec, Dense
from syncline.draw import Draw
from syncline.gates import Always, Gate
from syncline.layout import Bucket, Layout, Values, Weigh, Within, within
from syncline.nodes.server.update_writer import bucket_codec


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """What all workers of a run have in common."""

    layout: Layout
    draw: Draw
    codec: Codec = Dense()
    gate: Gate = Always()
    finite: bool = True
    """Refuse to send NaN and infinity."""
    patience: float | None = None
    """Seconds after which an unanswered push is sent again; None: never, the lane is reliable."""
    within: Within = within
    """Where a piece of a bucket lies in its update."""
    reply: Codec | None = None
    """How parameters are written, as changes; None: whole."""
    of_means: bool = False
    """Answers are the mean of a round, not parameters."""
    of_changes: bool = False
    """Updates are changes of the parameters: where no parameters come back, the application keeps its own change."""
    checks: bool = False
    """Replies come from other processes: what a codec has written is checked before it is read."""
    first: Mapping[Bucket, Values] | None = None
    """What all hold at the start without a message."""
    weigh: Weigh | None = None
    """How many bytes a bucket takes on the wire; None: as its codecs say."""

    def weight(self, bucket: Bucket) -> tuple[int, int]:
        """The bytes of a bucket's update and of its parameters on the wire, at most."""
        if self.weigh is not None:
            return self.weigh(bucket)
        pushed, pulled = (bucket_codec(each, self.layout, bucket) for each in (self.codec, self.reply or Dense()))
        return pushed.size(bucket.size), pulled.size(bucket.size)
