"""Replies that are changes: both sides stay bit-identical, and an unknown worker gets whole parameters."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.draw import Draw
from syncline.effects import Ready, Received
from syncline.errors import PeerError
from syncline.layout import Bucket, Layout, Values
from syncline.messages import Member, Params, View, server_id
from syncline.nodes.server.reply_codec import ReplyReader, ReplyWriter, teller
from syncline.nodes.server.worker import Worker
from syncline.nodes.server.worker_parts import WorkerParts
from syncline.spec import parse

SIZE = 3000
BUCKET = Bucket(0, SIZE)
LAYOUT = Layout.of([("w", (SIZE,))])


def pair(text: str, keeps: bool = True) -> tuple[ReplyWriter, ReplyReader]:
    codec = parse("codec", text)
    made = teller(codec, LAYOUT, BUCKET, Draw(1), keeps)
    assert made is not None
    return made, ReplyReader(codec, LAYOUT, keeps, {})


def reply(made: ReplyWriter, hearer: ReplyReader, params: Values, version: int, worker: int = 0) -> tuple[int, Values]:
    """Send a reply to a worker; return the bytes, and what the worker holds then."""
    payload, serial = made.tell(worker, 0, hearer.holds(BUCKET), params, version)
    written = payload.nbytes if payload.dtype == np.uint8 else 0
    answer = Params(0, 0, version, BUCKET, version, version, size=written, serial=serial)
    return payload.nbytes, hearer.hear(answer, payload.copy())


def walk(steps: int, seed: int = 0) -> list[Values]:
    """Parameters that change a little with every version, and then rest."""
    random = np.random.default_rng(seed)
    path = [random.normal(size=SIZE).astype(np.float32)]
    for _ in range(steps):
        path.append(path[-1] + 0.01 * random.normal(size=SIZE).astype(np.float32))
    return path


@pytest.mark.parametrize(
    "text", ["fp16", "bf16", "int8", "topk:0.05", "threshold:0.01", "onebit", "qsgd:7", "terngrad"]
)
def test_what_is_lost_in_one_reply_is_part_of_the_next(text: str) -> None:
    made, hearer = pair(text)
    path = walk(5)
    first, got = reply(made, hearer, path[0], 0)
    assert first == SIZE * 4
    assert np.array_equal(got, path[0])
    for version, params in enumerate(path[1:], 1):
        size, got = reply(made, hearer, params, version)
        assert size < first
    before = np.abs(got - path[-1]).max()
    for version in range(len(path), len(path) + 60):
        _, got = reply(made, hearer, path[-1], version)
    assert np.abs(got - path[-1]).max() <= max(before / 2, 0.011)  # threshold never sends less than its cut


def test_workers_that_hold_the_same_get_the_same_bytes() -> None:
    made, one = pair("topk:0.05")
    _, two = pair("topk:0.05")
    path = walk(2)
    for version, params in enumerate(path):
        ours = made.tell(0, 0, one.holds(BUCKET), params, version)
        theirs = made.tell(1, 0, two.holds(BUCKET), params, version)
        assert ours[0] is theirs[0]
        for hearer, (payload, serial) in ((one, ours), (two, theirs)):
            hearer.hear(Params(0, 0, version, BUCKET, version, version, serial=serial), payload.copy())


@pytest.mark.parametrize("loss", ["the reply", "its repeat", "the worker"])
def test_a_worker_that_may_hold_something_else_gets_whole_parameters(loss: str) -> None:
    made, hearer = pair("topk:0.05")
    path = walk(4)
    reply(made, hearer, path[0], 0)
    reply(made, hearer, path[1], 1)
    if loss == "the reply":
        made.tell(0, 0, hearer.holds(BUCKET), path[2], 2)
    elif loss == "its repeat":
        holds = hearer.holds(BUCKET)
        reply(made, hearer, path[2], 2)
        made.tell(0, 0, holds, path[2], 2)  # asked again by a worker that had not heard
    else:
        made.forget(0)
    size, got = reply(made, hearer, path[3], 3)
    assert size == SIZE * 4
    assert np.array_equal(got, path[3])
    size, _ = reply(made, hearer, path[4], 4)
    assert size < SIZE * 4


def test_another_incarnation_is_not_known() -> None:
    made, hearer = pair("int8")
    path = walk(1)
    reply(made, hearer, path[0], 0)
    payload, _ = made.tell(0, 1, hearer.holds(BUCKET), path[1], 1)
    assert payload.dtype == np.float32


def test_who_holds_the_first_model_without_a_message_gets_changes_at_once() -> None:
    codec, path = parse("codec", "int8"), walk(1)
    made = ReplyWriter(codec, BUCKET, Draw(1), True)
    made.all_hold([Member(0, 0, 0)], path[0])
    size, got = reply(made, ReplyReader(codec, LAYOUT, True, {BUCKET: path[0]}), path[1], 1)
    assert size < SIZE * 4
    assert np.allclose(got, path[1], atol=1e-3)


def test_means_are_written_once_and_what_is_lost_of_them_is_kept() -> None:
    made, hearer = pair("topk:0.1", keeps=False)
    mean = np.random.default_rng(0).normal(size=SIZE).astype(np.float32)
    total = np.zeros(SIZE, np.float32)
    for version in range(1, 41):
        payload, _ = made.tell(0, 0, 0, mean, version)
        assert made.tell(1, 0, 0, mean, version)[0] is payload
        total += hearer.hear(Params(0, 0, version, BUCKET, version, version, size=payload.nbytes), payload)
    assert np.abs(total / 40 - mean).max() < 0.5
    whole, _ = made.tell(0, 0, None, mean, 40)
    assert np.array_equal(whole, mean)


def test_a_number_from_another_server_is_never_taken_for_ones_own() -> None:
    """A bucket has moved: a worker that has not heard the first reply asks again, holding the old server's first."""
    path = walk(2)
    old, hearer = pair("topk:0.05")
    reply(old, hearer, path[0], 0)
    new, _ = pair("topk:0.05")
    new.tell(0, 0, hearer.holds(BUCKET), path[1], 1)
    size, got = reply(new, hearer, path[1], 1)
    assert size == SIZE * 4
    assert np.array_equal(got, path[1])


def test_bytes_are_refused_where_values_are_sent() -> None:
    worker = Worker(0, 0, WorkerParts(LAYOUT, Draw(0), checks=True), View(0, (Member(0, 0, 0),), ((BUCKET,),)))
    worker.handle(Ready(BUCKET, np.zeros(SIZE, np.float32)), 0.0)
    answer = Params(0, 0, 0, BUCKET, 1, 1, size=SIZE * 4)
    with pytest.raises(PeerError, match="sends plain values"):
        worker.handle(Received(server_id(0), answer, np.zeros(SIZE * 4, np.uint8)), 0.0)


def test_a_codec_that_saves_nothing_is_not_used() -> None:
    assert teller(parse("codec", "dense"), LAYOUT, BUCKET, Draw(1), True) is None
    assert teller(parse("codec", "topk:1"), LAYOUT, BUCKET, Draw(1), True) is None
    assert teller(None, LAYOUT, BUCKET, Draw(1), True) is None
