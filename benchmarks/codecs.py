"""Measure the cost of each codec: the time to encode and decode, relative to one memory copy of the same values.

    python benchmarks/codecs.py [--values 25000000] [--rounds 7] [--report FILE.json]

Goal: at most 10 times the time of a copy, for each codec, on one thread. All numbers are medians of one run in which
copying, encoding and decoding alternate, so that other work on the machine slows all of them equally. The first table
is for the whole array, the second for buckets of 1 MiB, which is how updates are sent. Encoding includes error
feedback: the residual is added and kept. `add` decodes and adds, as a shard does with an update. The update is normal
noise, of which threshold:2.58 sends 1 %. The last line compares the search for the largest 1 % with `torch.topk` (one
thread, the same values).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from syncline.codecs import Codec
from syncline.codecs.selecting import largest_positions
from syncline.draw import Draw
from syncline.layout import BUCKET_VALUES, Payload, Values
from syncline.spec import parse

GOAL = 10
CODECS = (
    *("dense", "fp16", "bf16", "int8", "topk:0.01", "topk:ratio=0.01,momentum=0.9", "threshold:2.58", "onebit"),
    *("qsgd:1", "qsgd:7", "qsgd:63", "qsgd:127", "qsgd:levels=7,feedback=true", "terngrad", "terngrad:true"),
    *("topk:0.01+fp16", "topk:0.01+int8", "by_size"),
)


def seconds(call: Callable[[], object]) -> float:
    begun = perf_counter()
    call()
    return perf_counter() - begun


class Bench:
    """Runs one codec over the values, in buckets."""

    def __init__(self, codec: Codec, update: Values, bucket: int) -> None:
        self.codec, self.update = codec, update
        starts = range(0, update.size, bucket)
        self.pieces = [update[start : start + bucket] for start in starts]
        self.memories = [codec.memory(piece.size) for piece in self.pieces]
        self.outs = [np.ones(codec.size(piece.size), np.uint8) for piece in self.pieces]
        self.target = np.ones_like(update)
        self.targets = [self.target[start : start + bucket] for start in starts]
        self.payloads: list[Payload] = []

    def reset(self) -> None:
        """Set the residuals to 0, which also makes the kernel allocate their memory before it is timed."""
        for memory in self.memories:
            for each in memory.values():
                each[:] = 0

    def copy(self) -> None:
        np.copyto(self.target, self.update)

    def encode(self) -> None:
        parts = enumerate(zip(self.pieces, self.memories, self.outs, strict=True))
        self.payloads = [
            self.codec.encode(piece, memory, out, partial(Draw(0).generator, "codec", at))
            for at, (piece, memory, out) in parts
        ]

    def decode(self) -> None:
        for payload, target in zip(self.payloads, self.targets, strict=True):
            self.codec.decode(payload, target)

    def add(self) -> None:
        for payload, target in zip(self.payloads, self.targets, strict=True):
            self.codec.add_into(payload, target)

    def check(self) -> None:
        for payload, piece in zip(self.payloads, self.pieces, strict=True):
            self.codec.check(payload, piece.size)


def measure(codec: Codec, update: Values, bucket: int, rounds: int) -> dict[str, float]:
    """The median seconds of each operation over all values, and the bytes per value; the first round is a warm-up."""
    bench = Bench(codec, update, bucket)
    taken: dict[str, list[float]] = {"copy": [], "encode": [], "decode": [], "add": [], "check": []}
    for _ in range(rounds + 1):
        bench.reset()
        for name in ("copy", "encode", "copy", "decode", "copy", "add", "check"):
            taken[name].append(seconds(getattr(bench, name)))
    sent = sum(payload.nbytes for payload in bench.payloads)
    warm = {name: figures[len(figures) // (rounds + 1) :] for name, figures in taken.items()}
    return {name: median(figures) for name, figures in warm.items()} | {"bytes_per_value": sent / update.size}


def measure_topk(update: Values, ratio: float, rounds: int) -> dict[str, float] | None:
    """The seconds to find the largest values, with our function and with torch.topk; None without torch."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    count = int(np.ceil(ratio * update.size))
    tensor = torch.from_numpy(update)
    taken: dict[str, list[float]] = {"ours": [], "torch": []}
    for _ in range(rounds):
        taken["ours"].append(seconds(lambda: largest_positions(update, count)))
        taken["torch"].append(seconds(lambda: torch.topk(tensor.abs(), count, sorted=False)))
    ours = np.sort(np.abs(update[largest_positions(update, count)]))
    theirs = torch.topk(tensor.abs(), count, sorted=False).values.numpy()
    assert np.array_equal(ours, np.sort(theirs))
    return {name: median(figures) for name, figures in taken.items()}


def show(title: str, rows: list[dict[str, Any]]) -> None:
    table = Table("codec", "bytes / dense", "copy ms", "encode", "decode", "add", "check", "goal", "met", title=title)
    for row in rows:
        ratios = [row[name] / row["copy"] for name in ("encode", "decode", "add", "check")]
        met = "yes" if max(ratios) <= GOAL else "no"
        share = f"{row['bytes_per_value'] / 4:.2%}"
        table.add_row(row["codec"], share, f"{row['copy'] * 1e3:.1f}", *(f"{each:.2f}" for each in ratios), "10", met)
    Console(width=120).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--values", type=int, default=25_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--codec", action="append", help="measure only this codec; may be given several times")
    parser.add_argument("--report", type=Path, help="write the results as JSON")
    arguments = parser.parse_args()
    update = np.random.default_rng(0).standard_normal(arguments.values, dtype=np.float32)
    texts = arguments.codec or CODECS
    report: dict[str, Any] = {"schema": 1, "values": arguments.values, "goal": GOAL}
    for name, bucket in (("whole", arguments.values), ("buckets", BUCKET_VALUES)):
        rows = [{"codec": text} | measure(parse("codec", text), update, bucket, arguments.rounds) for text in texts]
        show(f"{arguments.values:,} values, {bucket:,} at a time; times relative to a copy", rows)
        report[name] = rows
    report["topk"] = found = measure_topk(update, 0.01, arguments.rounds)
    if found:
        print(
            f"finding the largest 1 % of {arguments.values:,} values: {found['ours'] * 1e3:.1f} ms; torch.topk: "
            f"{found['torch'] * 1e3:.1f} ms, {found['torch'] / found['ours']:.1f} times as long"
        )
    if arguments.report:
        arguments.report.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
