"""One end of a link between two nodes: what is owed, what a message carries, and when a rest is sent."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.codecs import Dense, TopK
from syncline.draw import Draw
from syncline.layout import Bucket, Values
from syncline.nodes.tree.link_end import REST_GAPS, REST_PERIODS, LinkEnd
from syncline.nodes.tree.messages import Counted

BUCKET = Bucket(0, 4)
PERIOD = 0.5


@pytest.fixture
def link() -> LinkEnd:
    made = LinkEnd(BUCKET, 1, (0, 0, 0))
    made.open_at_start(frozenset(), BUCKET.size)
    return made


def sent(link: LinkEnd, counts: Counted, now: float, codec: Dense | TopK = Dense()) -> Values | None:  # noqa: B008
    """The values of the next message."""
    link.write(0, counts, codec, lambda: Draw(0).generator("codec"))
    link.wrote(now, PERIOD)
    assert link.unheard is not None
    message, payload = link.unheard
    link.unheard = None
    if payload is None or not message.size:
        return payload
    return codec.decode(payload, np.empty(BUCKET.size, np.float32))


def due(link: LinkEnd, counts: Counted, workers: bool = True) -> float | None:
    return link.due(counts, workers=workers, period=PERIOD)


def test_a_single_change_of_float32_is_sent_as_it_is_and_nothing_stays_owed(link: LinkEnd) -> None:
    change = np.array([0.1, 1e-30, -3, 0], np.float32)
    link.owe(change)
    kept = change.copy()
    change[:] = 9  # the worker uses its memory again
    found = sent(link, ((0, 1),), 0.0)
    assert found is not None
    assert found.tolist() == kept.tolist()
    assert not link.has_news(((0, 1),))
    assert due(link, ((0, 1),)) is None


def test_what_rounding_leaves_is_owed_and_all_messages_together_carry_the_sum(link: LinkEnd) -> None:
    total = np.zeros(4)
    carried = np.zeros(4)
    for number in range(1, 6):
        for change in (np.array([1 / 3, 1e-9, number, 0]), np.array([1e8, 1e-3, 1, 0], np.float32)):
            link.owe(change)
            total += change
        found = sent(link, ((0, number),), float(number))
        assert found is not None
        carried += found
    while link.has_news(((0, 5),)):
        rest = sent(link, ((0, 5),), 9.0)
        assert rest is not None
        carried += rest
    np.testing.assert_allclose(carried, total, rtol=1e-15)


def test_an_update_without_values_is_news_but_carries_none(link: LinkEnd) -> None:
    assert link.has_news(((0, 1),))
    assert sent(link, ((0, 1),), 0.0) is None
    link.owe(np.zeros(4, np.float32))
    assert sent(link, ((0, 2),), 1.0) is None


def test_a_rest_waits_until_no_update_has_come_for_a_while(link: LinkEnd) -> None:
    """Otherwise every message of a codec would be followed by a dense one, as soon as the period is over."""
    codec = TopK(0.25)
    for number, now in ((1, 0.0), (2, 10.0)):
        link.owe(np.array([4, 3, 2, 1], np.float32))
        assert due(link, ((0, number),)) == pytest.approx(PERIOD if number > 1 else 0)
        found = sent(link, ((0, number),), now, codec)
        assert found is not None
        assert np.count_nonzero(found) == 1
    assert due(link, ((0, 2),)) == 10 + max(REST_PERIODS * PERIOD, REST_GAPS * 10)
    assert due(link, ((0, 3),)) == 10 + PERIOD
    assert due(link, ((0, 2),), workers=False) == 10 + PERIOD
    rest = sent(link, ((0, 2),), 40.0, codec)
    assert rest is not None
    assert np.count_nonzero(rest) > 1  # dense
    assert due(link, ((0, 2),)) is None
