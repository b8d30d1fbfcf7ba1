"""What all workers of a run share."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.codecs import Codec, Dense
from syncline.draw import Draw
from syncline.layout import Layout, Weigh, Within


@dataclass(frozen=True)
class ExchangeTerms:
    """The settings that all workers share."""

    layout: Layout
    draw: Draw
    within: Within
    parts: int
    """How many ranges there are at the start."""
    tau: int
    accumulate: bool = True
    codec: Codec = Dense()
    finite: bool = False
    checks: bool = False
    """Whether values that arrive are checked, unless they are of the run's own workers."""
    own_workers: int = 0
    """Workers with a lower number are the run's own."""
    weigh: Weigh | None = None
    """The bytes of a range on the wire; None: the size of its plain values, or the codec's."""
    at_once: int = 0
    """To how many peers on other hosts a worker sends at a time; 0: to all."""
    measures: bool = False
    """Whether the workers measure how many ranges are best."""
    again: bool = True
    """Whether they measure again after the first choice."""
