"""What a worker counts in a run without servers, for the report of the run."""

from __future__ import annotations

from syncline.engines.net.control import Figures
from syncline.nodes.protocol import Trainer
from syncline.nodes.staleness import condensed


def peer_figures(node: Trainer, sent_bytes: int) -> Figures:
    """The counters of a worker that has left; `sent_bytes`: what it has sent to other workers."""
    counts = node.counts()
    return Figures(
        node.number,
        counts.updates,
        counts.dropped,
        0,
        counts.progress,
        sent_bytes,
        0,
        staleness=condensed(counts.staleness),
        of_worker=True,
        partitions=counts.partitions,
    )
