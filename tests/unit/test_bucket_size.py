"""The default size of buckets."""

from __future__ import annotations

import pytest

from syncline.engines.coordinator.bucket_size import LARGEST, PER_SERVER, SMALLEST, fitting
from syncline.engines.net.wiring import Wiring
from syncline.layout import VALUE_BYTES, Bucket, Layout, buckets
from syncline.units import size

RESNET_56 = 853_018
BETWEEN_HOSTS = [Wiring(listen="192.0.2.7"), Wiring(listen="0.0.0.0", lane="tcp"), Wiring(listen="2001:db8::7")]


@pytest.mark.parametrize("wiring", BETWEEN_HOSTS)
def test_a_small_model_between_hosts_has_several_buckets_on_each_server(wiring: Wiring) -> None:
    values = RESNET_56 // 4
    limit = size(fitting(wiring, values)["bucket"], "bucket") // VALUE_BYTES
    layout = Layout.of([("w", (values,))])
    assert len(buckets(layout, [Bucket(0, values)], limit)) >= PER_SERVER


@pytest.mark.parametrize(
    ("values", "word"),
    [
        (1, "64KiB"),
        (SMALLEST * PER_SERVER // VALUE_BYTES, "64KiB"),
        (RESNET_56 // 4, "104KiB"),
        (LARGEST * PER_SERVER // VALUE_BYTES - 1, "1023KiB"),
        (LARGEST * PER_SERVER // VALUE_BYTES, "1MiB"),
        (25_000_000, "1MiB"),
    ],
)
def test_between_hosts_it_is_neither_tiny_nor_larger_than_a_mebibyte(values: int, word: str) -> None:
    assert fitting(BETWEEN_HOSTS[0], values) == {"bucket": word}


@pytest.mark.parametrize("key", ["codec", "reply_codec"])
def test_with_a_codec_buckets_are_large(key: str) -> None:
    values = RESNET_56 // 4
    assert fitting(BETWEEN_HOSTS[0], values, [{key: "topk:0.01"}]) == {"bucket": "1MiB"}
    assert fitting(BETWEEN_HOSTS[0], values, [{key: "dense"}, {key: "topk:0.01"}]) == {"bucket": "104KiB"}
    assert fitting(Wiring(lane="tcp"), values, [{key: "topk:0.01"}]) == {"bucket": "2MiB"}


@pytest.mark.parametrize("values", [1, RESNET_56 // 4, 25_000_000])
@pytest.mark.parametrize("listen", ["", "127.0.0.1", "::1"])
def test_on_one_host_only_the_lane_counts(listen: str, values: int) -> None:
    assert fitting(Wiring(listen=listen, lane="tcp"), values) == {"bucket": "2MiB"}
    assert fitting(Wiring(listen=listen, lane="shm"), values) == {"bucket": "4MiB"}
    assert fitting(Wiring(listen=listen), values) == {"bucket": "4MiB"}
