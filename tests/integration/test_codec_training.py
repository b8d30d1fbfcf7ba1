"""Every codec trains, in both directions: all of them in the simulator, some in real runs, all of those if asked."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from samples import sampled
from trainings import simulated, train

CODECS = (
    *("dense", "fp16", "bf16", "int8", "topk:0.01", "threshold:0.001", "onebit", "qsgd:7", "terngrad"),
    *("topk:0.05+fp16", "by_size:1000,large=topk:0.01", "per_table:[*bias=dense],other=int8"),
)
"""All of them, and combinations; `dense` is trained with everywhere else."""
SYNC = ("bsp", "ssp:3")
SOME = (("topk:0.01", "bsp", "shm"), ("onebit", "ssp:3", "tcp"), ("int8", "bsp", "tcp"), ("terngrad", "ssp:3", "shm"))

VALUES = 9610
ITERATIONS = {"onebit": 1000, "topk:0.01": 600, "by_size:1000,large=topk:0.01": 600}
"""Of each worker, where it takes more than 300: one bit, or one value in a hundred, each way learns slowly."""

MOST_BYTES = {"topk:0.01": 0.025, "onebit": 0.04, "terngrad": 0.08, "fp16": 0.501, "bf16": 0.501, "int8": 0.27}
"""Of the dense bytes."""


def options(codec: str, sync: str) -> tuple[str, ...]:
    own = ("--sync", sync, "--codec", codec, "--reply-codec", codec)
    return "--workers", "4", "--servers", "2", "--iterations", str(ITERATIONS.get(codec, 300)), *own


def has_learned(report: dict[str, Any], codec: str) -> None:
    whole = 4 * VALUES * 4  # once of all workers
    dense = ITERATIONS.get(codec, 300) * whole
    assert report["accuracy"] >= 0.95, report["accuracy"]
    assert report["bytes_pushed"] <= MOST_BYTES.get(codec, 1) * dense
    if codec != "dense":
        assert report["bytes_pulled"] < report["bytes_pushed"] * 1.1 + 2 * whole  # the first ones go whole


@pytest.mark.parametrize(
    ("codec", "sync"), sampled(product(CODECS, SYNC), *product(CODECS[:9], SYNC), *product(CODECS[9:], ("bsp",)))
)
def test_every_codec_trains_in_the_simulator(codec: str, sync: str, tmp_path: Path) -> None:
    has_learned(simulated(tmp_path, *options(codec, sync)), codec)


def in_a_real_run(codec: str, sync: str, lane: str, folder: Path) -> None:
    report, _ = train(folder, *options(codec, sync), "--lane", lane)
    has_learned(report, codec)
    if sync == "bsp":
        there = simulated(folder, *options(codec, sync))
        assert report["params_sha256"] == there["params_sha256"]
        assert report["bytes_pushed"] == there["bytes_pushed"]
        assert report["bytes_pulled"] == there["bytes_pulled"]


@pytest.mark.parametrize(("codec", "sync", "lane"), SOME)
def test_some_codecs_train_in_a_real_run(codec: str, sync: str, lane: str, tmp_path: Path) -> None:
    in_a_real_run(codec, sync, lane, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("lane", ["shm", "tcp"])
@pytest.mark.parametrize("sync", SYNC)
@pytest.mark.parametrize("codec", CODECS)
def test_the_whole_matrix_of_codecs_in_real_runs(codec: str, sync: str, lane: str, tmp_path: Path) -> None:
    in_a_real_run(codec, sync, lane, tmp_path)


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
    _, errors = train(tmp_path, *words, code=2)
    assert said in errors
    assert len(errors.strip().splitlines()) == 1
