"""Codecs: how an update is encoded for the wire, and which part of it is kept for the next update (the residual)."""

from syncline.codecs.by_table import BySize, PerTable, Piecewise, codec_for
from syncline.codecs.chain import Chain
from syncline.codecs.dense import Dense
from syncline.codecs.halves import Bf16, Fp16
from syncline.codecs.onebit import OneBit
from syncline.codecs.protocol import Bytes, Chance, Codec, Memory, every_codec, is_exact, is_sparse, is_stochastic
from syncline.codecs.quantised import Int8, Qsgd, Terngrad
from syncline.codecs.sparse import Threshold, TopK
from syncline.parts import Part

CODECS: tuple[type[Part], ...] = (
    Dense,
    Fp16,
    Bf16,
    Int8,
    TopK,
    Threshold,
    OneBit,
    Qsgd,
    Terngrad,
    Chain,
    BySize,
    PerTable,
)

__all__ = [
    "CODECS",
    "Bf16",
    "BySize",
    "Bytes",
    "Chain",
    "Chance",
    "Codec",
    "Dense",
    "Fp16",
    "Int8",
    "Memory",
    "OneBit",
    "PerTable",
    "Piecewise",
    "Qsgd",
    "Terngrad",
    "Threshold",
    "TopK",
    "codec_for",
    "every_codec",
    "is_exact",
    "is_sparse",
    "is_stochastic",
]
