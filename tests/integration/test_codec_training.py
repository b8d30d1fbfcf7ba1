"""Every codec trains, in both directions: all of them in the simulator, some in real runs, all of those if asked."""

from __future__ import annotations

from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest

from commands import refused
from samples import sampled
from trainings import simulated, train

CODECS = (
    *("dense", "fp16", "bf16", "int8", "topk:0.01", "threshold:0.001", "onebit", "qsgd:7", "terngrad"),
    *("topk:0.05+fp16", "by_size:1000,large=topk:0.01", "per_table:[*bias=dense],other=int8"),
)
"""All of them, and combinations; `dense` is trained with everywhere else."""
SYNC = ("bsp", "ssp:3")

VALUES = 9610
ITERATIONS = {"onebit": 1000, "topk:0.01": 600, "by_size:1000,large=topk:0.01": 600}
"""Iterations of each worker for the codecs that need more than 300, because they send very little."""

MOST_BYTES = {"topk:0.01": 0.025, "onebit": 0.04, "terngrad": 0.08, "fp16": 0.501, "bf16": 0.501, "int8": 0.27}
"""Of the dense bytes."""


def options(codec: str, sync: str, workers: int, iterations: int = 0) -> tuple[str, ...]:
    own = ("--sync", sync, "--codec", codec, "--reply-codec", codec)
    many = str(iterations or ITERATIONS.get(codec, 300))
    return "--workers", str(workers), "--servers", "2", "--iterations", many, *own


def has_learned(report: dict[str, Any], codec: str) -> None:
    whole = len(report["workers"]) * VALUES * 4  # once of all workers
    dense = ITERATIONS.get(codec, 300) * whole
    assert report["accuracy"] >= 0.95, report["accuracy"]
    assert report["bytes_pushed"] <= MOST_BYTES.get(codec, 1) * dense
    if codec != "dense":
        assert report["bytes_pulled"] < report["bytes_pushed"] * 1.1 + 2 * whole  # the first ones go whole


QUICK = [codec for codec in CODECS[1:] if codec not in ITERATIONS]


@pytest.mark.parametrize(("codec", "sync"), sampled(product(CODECS, SYNC), *zip(QUICK, cycle(SYNC), strict=False)))
def test_every_codec_trains_in_the_simulator(codec: str, sync: str, tmp_path: Path) -> None:
    has_learned(simulated(tmp_path, *options(codec, sync, workers=2)), codec)


def comes_to_the_bits_of(simulation: dict[str, Any], real: dict[str, Any]) -> None:
    for key in ("params_sha256", "bytes_pushed", "bytes_pulled"):
        assert real[key] == simulation[key], key


@pytest.mark.parametrize(("codec", "lane"), sampled([("topk:0.01", "shm"), ("int8", "tcp")], ("topk:0.01", "shm")))
def test_some_codecs_are_bit_identical_to_the_simulator_in_a_real_run(codec: str, lane: str, tmp_path: Path) -> None:
    few = options(codec, "bsp", workers=2, iterations=30)
    comes_to_the_bits_of(simulated(tmp_path, *few), train(tmp_path, *few, "--lane", lane)[0])


@pytest.mark.slow
@pytest.mark.parametrize("lane", ["shm", "tcp"])
@pytest.mark.parametrize("sync", SYNC)
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_trains_in_a_real_run(codec: str, sync: str, lane: str, tmp_path: Path) -> None:
    whole = options(codec, sync, workers=4)
    report, _ = train(tmp_path, *whole, "--lane", lane)
    has_learned(report, codec)
    if sync == "bsp":
        comes_to_the_bits_of(simulated(tmp_path, *whole), report)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--codec", "topk:0"), "codec: 'topk:0'"),
        (("--codec", "topk:2"), "codec: 'topk:2'"),
        (("--reply-codec", "topk:2"), "reply_codec: 'topk:2'"),
        (("--codec", "zip"), "codec: 'zip' is unknown"),
        (("--codec", "topk:ratio=0.01,momentum=0.9", "--mode", "changes"), "mode 'changes' sends changes"),
        (("--codec", "topk:ratio=0.01,momentum=0.9", "--sync", "asp"), "mode 'changes' sends changes"),
        (("--reply-codec", "topk:ratio=0.01,momentum=0.9"), "replies have no momentum"),
    ],
)
def test_codecs_that_make_no_sense_are_refused_before_training(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    assert said in refused(tmp_path, "train", *words)
