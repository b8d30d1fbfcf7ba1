"""What the measured figures of the way between two hosts mean, and from where on something is wrong."""

from __future__ import annotations

from syncline.engines.doctor.finding import Finding, note, ok, wrong
from syncline.engines.doctor.messages import Facts
from syncline.engines.net.addresses import Address

LEAST_RATE = 12.5e6
"""Bytes per second, 100 Mbit/s: the slowest network for which whole updates make sense."""

LONG_TRIP = 0.05
"""Seconds of a round trip over which rounds that wait for each other get slow."""

CLOCKS_APART = 60.0
"""Seconds that two clocks may differ. Keys tolerate a day, but logs and checkpoints are then hard to compare."""

CLOCKS_NEAR = 1.0

MODEL_BYTES = 100e6
"""The size of the model in the example: 25 million parameters, as in ResNet-50."""

WHAT_WORKS = (
    "workers with strategy server or tree only dial out, so they can join from here (-n N without --servers); servers, "
    "nodes of a tree and workers with strategy exchange cannot run here"
)


def versions(here: Facts, there: Facts) -> Finding:
    both = f"syncline {here.version} here, {there.version} there"
    if here.version != there.version or here.protocol != there.protocol:
        return wrong("versions", both, f"install the same version on both: pip install syncline=={there.version}")
    names = ("python", "numpy", "torch")
    differ = [name for name in names if getattr(here, name) != getattr(there, name)]
    if differ:
        said = ", ".join(f"{name} {getattr(here, name)} here, {getattr(there, name)} there" for name in differ)
        return note("versions", f"{both}; {said}", "they can train together, but not bit-identically")
    return ok("versions", f"{both}; the same Python, numpy and torch")


def round_trip(seconds: float) -> Finding:
    text = f"{seconds * 1e3:.3g} ms there and back"
    if seconds > LONG_TRIP:
        remedy = "a sync model that does not wait for every round hides it: --sync ssp:3"
        return note("latency", text, remedy, seconds=seconds)
    return ok("latency", text, seconds=seconds)


def clocks(ahead: float, trip: float) -> Finding:
    """`ahead`: how many seconds the other clock is ahead of ours, measured with a round trip of `trip` seconds."""
    apart = abs(ahead)
    text = f"the other one is {apart:.3f} s {'ahead' if ahead > 0 else 'behind'} (to {trip / 2:.3f} s)"
    if apart > CLOCKS_APART:
        remedy = "correct the wrong one, best with a time service such as chrony"
        return wrong("clocks", text, remedy, seconds_ahead=ahead)
    if apart > max(CLOCKS_NEAR, trip):
        return note("clocks", text, "start a time service such as chrony on both", seconds_ahead=ahead)
    return ok("clocks", text, seconds_ahead=ahead)


def bandwidth(check: str, size: int, seconds: float) -> Finding:
    """`size`: the bytes that have arrived in this time."""
    rate = size / seconds if seconds else 0.0
    text = _rate(rate)
    if not rate:
        return wrong(check, "nothing has arrived", "try again; if it stays so, look at the cable and the interface")
    if rate < LEAST_RATE:
        slow = f"{text}; an update of 25 million parameters takes {MODEL_BYTES / rate:.0f} s"
        remedy = (
            "look for Wi-Fi, a cable or switch with 10 or 100 Mbit/s, a limit of the provider; or send less: "
            "--codec topk:0.01, --gate"
        )
        return wrong(check, slow, remedy, bytes_per_second=rate)
    return ok(check, text, bytes_per_second=rate)


def _rate(rate: float) -> str:
    bits = rate * 8
    return f"{bits / 1e9:.3g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:.3g} Mbit/s"


def translated(own: str, seen: str) -> Finding:
    text = f"this host is {own}, and the other one sees {seen}: a NAT lies between, so it cannot connect to this host"
    return wrong("way back", text, WHAT_WORKS, own=own, seen=seen)


def no_way_back(place: Address, problem: str, *, given: bool) -> Finding:
    """`given`: the user has chosen the port."""
    text = f"the other host cannot connect to {place}: {problem}"
    port = f"TCP port {place.port}" if given else "one TCP port, and name it with --port here and in syncline run"
    return wrong("way back", text, f"let the firewall of this host pass {port}; without that, {WHAT_WORKS}")
