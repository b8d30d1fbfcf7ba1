"""The checks of `syncline doctor`, one by one: what they call wrong, and what they say."""

from __future__ import annotations

import errno
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from syncline.engines.doctor import host_checks, judgements, key_checks, network_checks, reaching
from syncline.engines.doctor.finding import Finding, Status, all_well, note, ok, wrong
from syncline.engines.doctor.interfaces import Interface, interfaces
from syncline.engines.doctor.messages import Facts, own_facts
from syncline.engines.net import keys
from syncline.engines.net.addresses import Address

NOW = datetime(2026, 5, 4, tzinfo=UTC)

ETHERNET = Interface("eth0", "10.0.0.5", True)
BRIDGE = Interface("docker0", "172.17.0.1", True)


def said(finding: Finding, status: Status, *texts: str) -> None:
    assert finding.status is status, finding
    for text in texts:
        assert text in finding.line(), finding


def test_only_something_wrong_is_not_well() -> None:
    assert all_well([ok("a", "b"), note("c", "d")])
    assert not all_well([ok("a", "b"), wrong("c", "d", "e")])


def test_what_another_host_says_is_escaped() -> None:
    assert wrong("a", "b\x1b[2J", "c").line() == "wrong  a: b\\x1b[2J; c"


def test_a_container_with_few_processors() -> None:
    said(host_checks.processors(0.5), Status.NOTE, "of which this container may use 0.5", "set OMP_NUM_THREADS to 1")


@pytest.mark.parametrize(
    ("text", "quota"), [("50000 100000\n", 0.5), ("max 100000\n", float("inf")), ("", float("inf"))]
)
def test_the_limit_of_processors(tmp_path: Path, text: str, quota: float) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert host_checks.processor_quota(tmp_path / "cpu.max") == quota
    assert host_checks.processor_quota(tmp_path / "missing") == float("inf")


def test_shared_memory_that_is_missing(tmp_path: Path) -> None:
    said(host_checks.shared_memory(tmp_path / "shm"), Status.WRONG, "cannot be used: No such file", "--shm-size=1g")


def test_shared_memory_that_is_small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host_checks, "LEAST_SHARED", 1 << 62)
    said(host_checks.shared_memory(tmp_path), Status.WRONG, "free of", "--shm-size=1g")
    monkeypatch.setattr(host_checks, "LEAST_SHARED", 1)
    said(host_checks.shared_memory(tmp_path), Status.OK, "free of")


def test_few_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_checks.resource, "getrlimit", lambda _: (256, 4096))
    said(host_checks.open_files(), Status.WRONG, "a process may open 256; raise the limit", "ulimit -n 4096")


def test_the_clock() -> None:
    said(host_checks.clock(datetime(1970, 1, 1, tzinfo=UTC), True), Status.WRONG, "1970-01-01", "set it")
    said(host_checks.clock(NOW, False), Status.NOTE, "no time service sets it")
    said(host_checks.clock(NOW, True), Status.OK, "2026-05-04")


def test_the_name_of_the_host() -> None:
    def unknown(_: str) -> list[str]:
        raise OSError(-2, "Name or service not known")

    said(network_checks.host_name("vm", lambda _: ["10.0.0.5"]), Status.OK, "'vm' leads to 10.0.0.5")
    said(network_checks.host_name("vm", lambda _: ["127.0.1.1"]), Status.WRONG, "leads to 127.0.1.1", "/etc/hosts")
    said(network_checks.host_name("vm", lambda _: ["::1"]), Status.WRONG, "leads to ::1")
    said(network_checks.host_name("vm", unknown), Status.WRONG, "cannot be looked up: Name or service not known")


def address(given: str = "", *there: Interface, towards: str = "") -> Finding:
    return network_checks.own_address(given, towards, there)[1]


def test_the_address() -> None:
    said(address("10.0.0.5", ETHERNET), Status.OK, "10.0.0.5 on eth0 (you have named it)")
    said(address("10.0.0.5", ETHERNET, BRIDGE), Status.OK)
    said(address("172.17.0.1", ETHERNET, BRIDGE), Status.WRONG, "a network inside of this host", "10.0.0.5 on eth0")
    said(address("10.0.0.6", ETHERNET), Status.WRONG, "is not an address of this host", "10.0.0.5 on eth0")
    said(address("10.0.0.5", ETHERNET._replace(runs=False)), Status.WRONG, "the interface is down", "ip link set eth0")
    said(address("127.0.0.1", ETHERNET), Status.NOTE, "other hosts cannot join", "10.0.0.5 on eth0")
    said(address("127.0.0.1"), Status.NOTE, "this host has only loopback addresses")


def test_no_route(monkeypatch: pytest.MonkeyPatch) -> None:
    def route_to(_: str) -> str:
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr(network_checks.addresses, "route_to", route_to)
    text = "there is no route to 192.0.2.7: Network is unreachable; this host's addresses are 10.0.0.5 on eth0"
    said(address("", ETHERNET, towards="192.0.2.7"), Status.WRONG, text)


def test_loopback_is_no_interface() -> None:
    assert not [each for each in interfaces() if each.name == "lo" and each.address.startswith("127.")]


def test_it_can_listen() -> None:
    said(network_checks.listening("127.0.0.1", 0), Status.OK, "possible at 127.0.0.1, port that the system chooses")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError(), "the host answers, but no process listens at this port"),
        (OSError(errno.EHOSTUNREACH, "x"), "no host answers at this address"),
        (OSError(errno.ENETUNREACH, "x"), "no route to that network; this host's addresses are 10.0.0.5 on eth0"),
        (PermissionError(errno.EPERM, "x"), "the routes or the firewall of this host forbid the connection"),
    ],
)
def test_why_a_host_cannot_be_reached(error: OSError, text: str) -> None:
    said(reaching.unreachable(Address("192.0.2.7", 7070), error, [ETHERNET]), Status.WRONG, text)


def test_a_key_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    said(key_checks.key(None, {}), Status.NOTE, "none was given")
    said(key_checks.key(file, {}), Status.WRONG, "does not exist; copy the launcher's key file")
    keys.make_key_file(file)
    said(key_checks.key(file, {}), Status.OK, "nobody else can read it")
    file.chmod(0o640)
    said(key_checks.key(file, {}), Status.WRONG, "is accessible to other users (mode 0640); run: chmod 600")
    said(key_checks.key(None, {"SYNCLINE_KEY": "short"}), Status.WRONG, "has 5 characters")


def test_the_dates_of_a_key() -> None:
    pem = keys.fresh_key(NOW)
    for days, status in ((-2, Status.WRONG), (0, Status.OK), (360, Status.NOTE), (366, Status.WRONG)):
        said(key_checks.judged(pem, "K", NOW + timedelta(days=days)), status, "key: K")


def test_versions() -> None:
    here = own_facts("")
    said(judgements.versions(here, here), Status.OK, "the same Python, numpy and torch")
    other = Facts("9.9", here.protocol, here.python, here.numpy, here.torch)
    said(judgements.versions(here, other), Status.WRONG, "9.9 there", "pip install syncline==9.9")
    other = Facts(here.version, here.protocol + 1, here.python, here.numpy, here.torch)
    said(judgements.versions(here, other), Status.WRONG)
    other = Facts(here.version, here.protocol, here.python, "1.0", here.torch)
    said(judgements.versions(here, other), Status.NOTE, "numpy", "1.0 there")


@pytest.mark.parametrize(
    ("ahead", "status"), [(0.01, Status.OK), (-5.0, Status.NOTE), (100.0, Status.WRONG), (-100.0, Status.WRONG)]
)
def test_clocks(ahead: float, status: Status) -> None:
    said(judgements.clocks(ahead, 0.001), status, "ahead" if ahead > 0 else "behind")


def test_bandwidth() -> None:
    said(judgements.bandwidth("x", 10**9, 1.0), Status.OK, "8 Gbit/s")
    said(
        judgements.bandwidth("x", 1_250_000, 1.0),
        Status.WRONG,
        "10 Mbit/s; an update of 25 million parameters takes 80",
    )
    said(judgements.bandwidth("x", 0, 0.0), Status.WRONG, "nothing has arrived")


def test_round_trips() -> None:
    said(judgements.round_trip(0.0002), Status.OK, "0.2 ms there and back")
    said(judgements.round_trip(0.2), Status.NOTE, "200 ms", "--sync ssp:3")
