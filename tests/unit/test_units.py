"""Quantities as people write them."""

from __future__ import annotations

import pytest

from syncline.errors import UsageError
from syncline.units import rate, seconds, size


@pytest.mark.parametrize(
    ("text", "bytes_per_second"),
    [
        ("1Gbit", 125e6),
        ("1Gbit/s", 125e6),
        ("10 Gbit", 1.25e9),
        ("100Mbit", 12.5e6),
        ("8bit", 1.0),
        ("2GB/s", 2e9),
        ("2GB", 2e9),
        ("1.5MB/s", 1.5e6),
        ("1MiB/s", 2.0**20),
        ("1GiB/s", 2.0**30),
        ("1_000kB/s", 1e6),
        (" 1Gbit ", 125e6),
        ("1e3MB/s", 1e9),
    ],
)
def test_rates(text: str, bytes_per_second: float) -> None:
    assert rate(text, "network.bandwidth") == bytes_per_second


@pytest.mark.parametrize(
    ("text", "count"), [("1MiB", 1 << 20), ("4KiB", 4096), ("1MB", 1_000_000), ("512B", 512), ("0.5MiB", 1 << 19)]
)
def test_sizes(text: str, count: int) -> None:
    assert size(text, "strategy.bucket") == count


@pytest.mark.parametrize(
    ("value", "expected"),
    [("2s", 2.0), ("0.1ms", 1e-4), ("100us", 1e-4), ("5 ns", 5e-9), ("1min", 60.0), (0.25, 0.25), (0, 0), ("0s", 0)],
)
def test_times(value: str | float, expected: float) -> None:
    assert seconds(value, "network.latency") == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    "text", ["", "1", "Gbit", "1Gb", "1gbit", "-1Gbit", "1Gbit/h", "1 2Gbit", "nanGbit", "1Gbit s"]
)
def test_an_invalid_rate_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^network\.bandwidth: .*1Gbit") as caught:
        rate(text, "network.bandwidth")
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["", "1", "1M", "1MiB/s", "-1MiB", "MiB"])
def test_an_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^strategy\.bucket: .*1MiB"):
        size(text, "strategy.bucket")


@pytest.mark.parametrize("text", ["0Gbit", "0.0GB/s", "1e-400Gbit"])
def test_rates_are_above_0(text: str) -> None:
    with pytest.raises(UsageError, match=r"^network\.bandwidth: "):
        rate(text, "network.bandwidth")


@pytest.mark.parametrize("text", ["0MiB", "1e400B"])
def test_sizes_are_above_0_and_finite(text: str) -> None:
    with pytest.raises(UsageError, match=r"^strategy\.bucket: "):
        size(text, "strategy.bucket")


@pytest.mark.parametrize("value", ["1", "ms", "1h", "-1ms", "", -0.1, float("nan"), float("inf"), "1e400s"])
def test_an_invalid_time_is_refused(value: str | float) -> None:
    with pytest.raises(UsageError, match=r"^network\.latency: .*is not a time"):
        seconds(value, "network.latency")
