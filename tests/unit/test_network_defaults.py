"""The default sizes of buckets and windows, and the default placement."""

from __future__ import annotations

import pytest

from syncline.engines.coordinator.network_defaults import LARGEST, PER_SERVER, SMALLEST, fitting
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
    ("values", "bucket", "window", "placement"),
    [
        (1, "64KiB", "128KiB", "elastic"),
        (3 * SMALLEST // VALUE_BYTES, "64KiB", "128KiB", "elastic:3"),
        (RESNET_56 // 4, "69KiB", "138KiB", "elastic:8"),
        (25_000_000, "128KiB", "512KiB", "elastic:8"),
    ],
)
def test_between_hosts_buckets_are_small_and_dealt_in_stripes(
    values: int, bucket: str, window: str, placement: str
) -> None:
    assert fitting(BETWEEN_HOSTS[0], values) == {"bucket": bucket, "window": window, "placement": placement}


def test_the_window_grows_with_the_round_trip() -> None:
    """It must hold what a link of 1 Gbit/s carries until the first answer can be here."""
    found = fitting(BETWEEN_HOSTS[0], 25_000_000, round_trip=0.040)
    assert size(found["window"], "window") >= 4 * LARGEST + 0.040 * 125e6 - 1024


@pytest.mark.parametrize("key", ["codec", "reply_codec"])
def test_with_a_codec_buckets_are_large(key: str) -> None:
    values = RESNET_56 // 4
    assert fitting(BETWEEN_HOSTS[0], values, [{key: "topk:0.01"}]) == {"bucket": "1MiB"}
    assert fitting(BETWEEN_HOSTS[0], values, [{key: "dense"}, {key: "topk:0.01"}])["bucket"] == "69KiB"
    assert fitting(Wiring(lane="tcp"), values, [{key: "topk:0.01"}]) == {"bucket": "2MiB"}


@pytest.mark.parametrize("values", [1, RESNET_56 // 4, 25_000_000])
@pytest.mark.parametrize("listen", ["", "127.0.0.1", "::1"])
def test_on_one_host_only_the_lane_counts(listen: str, values: int) -> None:
    assert fitting(Wiring(listen=listen, lane="tcp"), values) == {"bucket": "2MiB"}
    assert fitting(Wiring(listen=listen, lane="shm"), values) == {"bucket": "4MiB"}
    assert fitting(Wiring(listen=listen), values) == {"bucket": "4MiB"}
