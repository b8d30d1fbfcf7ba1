"""A sparsifier whose values are written by a second codec: `topk:0.01+fp16`."""

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
    """What the first codec picks, written by the second; what the second could not write stays in the residual."""

    name = "chain"
    example = "topk:0.01+fp16"
    infix = "+"
    sparse = False  # sent + residual = update holds to rounding
    first: Codec
    second: Codec

    def __post_init__(self) -> None:
        if not isinstance(self.first, Sparse) or isinstance(self.first, Chain):
            raise UsageError(
                "chain",
                f"{written(self.first)!r} picks no values; the first codec is topk or threshold: topk:0.01+fp16",
            )
        if getattr(self.second, "plain", False):
            raise UsageError("chain", f"{written(self.first)!r} alone already sends its values as they are")
        if is_sparse(self.second) or hasattr(self.second, "choose") or not is_exact(self.second):
            raise UsageError("chain", f"{written(self.second)!r} cannot write picked values; fp16, bf16, int8, ... can")
        if getattr(self.second, "feedback", False):
            raise UsageError(
                "chain", f"the chain keeps what is left over: leave out feedback in {written(self.second)!r}"
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
