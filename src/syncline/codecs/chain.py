"""A sparse codec whose picked values are encoded by a second codec: `topk:0.01+fp16`."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.codecs.indices import Positions
from syncline.codecs.protocol import Codec, Memory, is_exact, is_sparse
from syncline.codecs.sparse import Sparse
from syncline.errors import UsageError
from syncline.layout import Values
from syncline.parts import written


@dataclass(frozen=True)
class Chain(Sparse):
    """The first codec picks values and the second encodes them; its rounding error stays in the residual."""

    name = "chain"
    example = "topk:0.01+fp16"
    infix = "+"
    sparse = False  # sent + residual = update holds only up to rounding
    first: Codec
    second: Codec

    def __post_init__(self) -> None:
        if not isinstance(self.first, Sparse) or isinstance(self.first, Chain):
            raise UsageError(
                "chain",
                f"{written(self.first)!r} cannot come first; the first codec must be topk or threshold: topk:0.01+fp16",
            )
        if getattr(self.second, "plain", False):
            alone, second = written(self.first), written(self.second)
            raise UsageError("chain", f"{alone!r} already sends its values unchanged; leave out {second!r}")
        if is_sparse(self.second) or hasattr(self.second, "choose") or not is_exact(self.second):
            problem = f"{written(self.second)!r} cannot come second; use fp16, bf16, int8, onebit, qsgd or terngrad"
            raise UsageError("chain", problem)
        if getattr(self.second, "feedback", False):
            raise UsageError(
                "chain", f"leave out feedback in {written(self.second)!r}: the chain itself keeps the residual"
            )

    @property
    def exact(self) -> bool:
        return is_exact(self.first)

    @property
    def inner(self) -> Codec:
        return self.second

    @property
    def _picker(self) -> Sparse:
        assert isinstance(self.first, Sparse)
        return self.first

    def count(self, values: int) -> int | None:
        return self._picker.count(values)

    def pick(self, values: Values) -> Positions:
        return self._picker.pick(values)

    def memory(self, values: int) -> Memory:
        return self._picker.memory(values)

    def gather(self, update: Values, memory: Memory) -> Values:
        return self._picker.gather(update, memory)

    def leave(self, positions: Positions, values: Values, memory: Memory) -> None:
        self._picker.leave(positions, values, memory)
