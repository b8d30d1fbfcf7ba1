"""What a worker knows of its copy of each bucket, in case the server that holds the bucket dies (recovery.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from syncline.layout import Bucket
from syncline.messages import LastPush, Params, Taken


class LastAnswers:
    """The answer that brought the values of each bucket; None: these values are spoiled."""

    __slots__ = ("_founder", "_of", "_start")

    def __init__(self, start: int, *, founder: bool) -> None:
        """`start`: the V of the first values. `founder`: whether the worker began with them."""
        self._of: dict[Bucket, Params | Taken | None] = {}
        self._start = start
        self._founder = founder

    def keep(self, answer: Params | Taken) -> None:
        self._of[answer.bucket] = answer

    def spoil(self, buckets: Iterable[Bucket]) -> None:
        self._of |= dict.fromkeys(buckets)

    def rename(self, inside: Callable[[Bucket], Iterable[Bucket]]) -> None:
        """Follow a new placement."""
        self._of = {piece: answer for bucket, answer in self._of.items() for piece in inside(bucket)}

    def has_values(self, bucket: Bucket) -> bool:
        """Whether the worker has a whole copy."""
        return self._of.get(bucket) is not None or (self._founder and bucket not in self._of)

    def v(self, bucket: Bucket) -> int:
        answer = self._of.get(bucket)
        return self._start if answer is None else answer.v

    def contained(self, bucket: Bucket) -> tuple[int, tuple[LastPush, ...]]:
        """The last round that the copy contains, and the updates that differ from it (`Params.seen`)."""
        answer = self._of.get(bucket)
        return (answer.progress, answer.seen) if type(answer) is Params else (self._start - 1, ())
