"""The exchange strategy (Ako): equal workers send each other parts of their updates; there are no servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from syncline.codecs import Codec, Dense
from syncline.layout import Bucket, Layout
from syncline.messages import Message, View
from syncline.nodes.exchange.membership import PeerMembership
from syncline.nodes.exchange.messages import MESSAGES
from syncline.nodes.exchange.peer import ExchangeWorker
from syncline.nodes.exchange.sending import AT_ONCE
from syncline.nodes.exchange.terms import ExchangeTerms
from syncline.nodes.update_writer import bucket_codec
from syncline.spec import part_of
from syncline.strategies.exchange.checks import REFUSED, check
from syncline.strategies.protocol import Job, Strategy

AUTO = "auto"


@dataclass(frozen=True)
class ExchangeStrategy(Strategy):
    """`partitions`: p, the number of ranges; `tau`: how many updates beyond p a worker may be ahead of the slowest."""

    kind: ClassVar[str] = "exchange"
    messages: ClassVar[tuple[type[Message], ...]] = MESSAGES
    defaults: ClassVar[Mapping[str, str]] = {
        "partitions": AUTO,
        "tau": "0",
        "accumulate": "true",
        "codec": "dense",
        "remeasure": "true",
    }
    takes_joiners: ClassVar[bool] = True
    least_workers: ClassVar[int] = 2
    free_running: ClassVar[bool] = True
    timed: ClassVar[str] = "every worker steps and sends at a pace of its own"
    refuses: ClassVar[Mapping[str, str]] = REFUSED

    partitions: int | Literal["auto"] = "auto"
    """auto: as many as the measured rate of updates and bandwidth ask for; 1: every update goes whole to everybody."""
    tau: int = 0
    accumulate: bool = True
    """False, for comparison: a range is sent without the updates since it was last sent."""
    codec: Codec = Dense()
    remeasure: bool = True
    """With `auto`: whether the number of ranges may change again after the first measurement."""

    def __post_init__(self) -> None:
        """The codec may be its text."""
        object.__setattr__(self, "codec", part_of("codec", self.codec))

    @classmethod
    def setting_types(cls) -> dict[str, Any]:
        return {"partitions": int | str, "tau": int, "accumulate": bool, "codec": str, "remeasure": bool}

    @property
    def synchronous(self) -> bool:
        return self.partitions == 1 and self.tau == 0

    def check(self, workers: int) -> None:
        check(self, workers)

    def costs(self, workers: int) -> tuple[str, ...]:
        parts = "p" if self.partitions == AUTO else f"{self.partitions}"
        found = [f"each worker keeps its last updates: at most 2 x {parts} + 1 times the model, more if a peer lags"]
        if self.codec != Dense():
            found.append(f"codec {self.codec} keeps what it has not sent, for each peer: {workers - 1} x the model")
        return tuple(found)

    def coordinator(self, job: Job, view: View) -> PeerMembership:
        return PeerMembership(view)

    def trainer(self, worker: int, incarnation: int, job: Job, view: View) -> ExchangeWorker:
        auto = self.partitions == AUTO
        terms = ExchangeTerms(
            job.layout,
            job.draw,
            job.within,
            1 if isinstance(self.partitions, str) else self.partitions,
            self.tau,
            self.accumulate,
            self.codec,
            job.finite,
            checks=job.remote,
            own_workers=job.own_workers,
            weigh=job.weigh,
            at_once=AT_ONCE if job.remote else 0,
            measures=auto,
            again=auto and self.remeasure,
        )
        return ExchangeWorker(worker, incarnation, terms, self.buckets(job.layout, view.topology), view)

    # For the simulator.

    def plain(self) -> Self:
        return replace(self, codec=Dense())

    def wire_bytes(self, layout: Layout, bucket: Bucket) -> tuple[int, int]:
        size = bucket_codec(self.codec, layout, bucket).size(bucket.size)
        return size, size
