"""`syncline doctor`: each thing that can be wrong with a host, or between two hosts, is named."""

from __future__ import annotations

import json
import shlex
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import commands
from firewall import NEW, behind_a_router, drop, names, skip_without_nft
from netns import LINK, Host, ip, two_hosts
from remote import SECRET, Loopback, Running, loopback
from syncline.engines.net.keys import make_key_file

DOCTOR = [sys.executable, "-m", "syncline", "doctor"]

SKEWED = """
from syncline.cli.main import main
from syncline.engines.doctor import host_checks
found = host_checks.version
host_checks.version = lambda package: "0.0.7" if package == "syncline" else found(package)
main()
"""


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    with two_hosts() as pair:
        for host in pair:
            well_named(host)
        yield pair


def well_named(host: Host) -> None:
    names(host, f"127.0.0.1 localhost\n{host.address} {socket.gethostname()}\n")


def doctor(host: Host | Loopback, *words: object, start: list[str] = DOCTOR, **environment: str) -> Running:
    return Running(host, command=[*start, *map(str, words)], **environment)


def listening(host: Host, *words: object, at: str = "", **environment: str) -> tuple[Running, list[str]]:
    """A doctor that listens, and the words that it prints for the other host."""
    running = doctor(host, "--listen", at or f"{host.address}:7070", *words, **environment)
    return running, shlex.split(running.line_with("run there: syncline doctor").partition("syncline doctor ")[2])


def checks(report: Path) -> dict[str, dict[str, Any]]:
    """What was found last, by check."""
    return {each["check"]: each for each in json.loads(report.read_text())["checks"]}


def wrong(report: Path) -> set[str]:
    found = json.loads(report.read_text())
    assert not found["well"]
    return {each["check"] for each in found["checks"] if each["status"] == "wrong"}


def test_all_is_well_between_two_hosts(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    """Both sides say so, and the exit codes too."""
    report = tmp_path / "report.json"
    there, invitation = listening(hosts[0], SYNCLINE_KEY=SECRET)
    here = doctor(hosts[1], *invitation, "--report", report, SYNCLINE_KEY=SECRET)
    assert (here.end(), there.end()) == (0, 0), here.text + there.text
    found = json.loads(report.read_text())
    assert (found["made_by"], found["schema"], found["well"]) == ("syncline", 1, True)
    assert checks(report)["bandwidth there"]["figures"]["bytes_per_second"] > 12.5e6
    for each in ("versions", "address", "key", "latency", "clocks", "bandwidth there", "bandwidth back", "way back"):
        assert checks(report)[each]["status"] == "ok", here.text
    assert f"{hosts[1].address} has joined, and has found:" in there.text
    assert f"way back: the other host can connect to {hosts[1].address}:" in there.text


@pytest.mark.slow
def test_a_port_is_blocked(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    skip_without_nft()
    report = tmp_path / "report.json"
    drop(hosts[0], "tcp dport 7070")
    there, invitation = listening(hosts[0], SYNCLINE_KEY=SECRET)
    here = doctor(hosts[1], *invitation, "--report", report, SYNCLINE_KEY=SECRET)
    assert here.end() == 1, here.text
    assert wrong(report) == {"connection"}
    assert "port 7070 is blocked; the host answers at port 22; let the firewalls on the way pass" in here.text
    there.interrupt()
    assert there.end() == 130


@pytest.mark.slow
def test_the_first_host_drops_everything(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    skip_without_nft()
    drop(hosts[0], NEW)
    here = doctor(hosts[1], "--join", f"{hosts[0].address}:7070", SYNCLINE_KEY=SECRET)
    assert here.end() == 1, here.text
    assert "nothing answers: a firewall drops what is sent, or the host is off" in here.text


@pytest.mark.slow
def test_nobody_listens(hosts: tuple[Host, Host]) -> None:
    here = doctor(hosts[1], "--join", f"{hosts[0].address}:7070", SYNCLINE_KEY=SECRET)
    assert here.end() == 1, here.text
    assert "the host answers, but no process listens at this port; start the other side first" in here.text


@pytest.mark.slow
def test_the_other_host_lets_no_connection_in(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    """A firewall in one direction only: the joiner reaches the listener, and the listener not the joiner."""
    skip_without_nft()
    report = tmp_path / "report.json"
    drop(hosts[1], NEW)
    there, invitation = listening(hosts[0], SYNCLINE_KEY=SECRET)
    here = doctor(hosts[1], *invitation, "--port", 7071, "--report", report, SYNCLINE_KEY=SECRET)
    assert (here.end(), there.end()) == (1, 1), here.text + there.text
    assert wrong(report) == {"way back"}
    assert "let the firewall of this host pass TCP port 7071" in here.text
    assert "workers with strategy server or tree only dial out" in here.text


@pytest.mark.slow
def test_a_nat_lies_between(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    with behind_a_router() as (outside, inside):
        for host in (outside, inside):
            well_named(host)
        there, invitation = listening(outside, SYNCLINE_KEY=SECRET)
        here = doctor(inside, *invitation, "--report", report, SYNCLINE_KEY=SECRET)
        assert (here.end(), there.end()) == (1, 1), here.text + there.text
        assert wrong(report) == {"way back"}
        assert "a NAT lies between" in here.text


@pytest.mark.slow
def test_the_keys_differ(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    """The listener goes on: the next one has the right key."""
    report = tmp_path / "report.json"
    for name in ("key", "other"):
        make_key_file(tmp_path / name)
    there, invitation = listening(hosts[0], "--key-file", tmp_path / "key")
    other = doctor(hosts[1], *invitation[:2], "--key-file", tmp_path / "other", "--report", report)
    assert other.end() == 1, other.text
    assert wrong(report) == {"key"}
    assert "the two sides have different keys; copy the launcher's key file to every host" in other.text
    there.line_with("refused a connection")
    right = doctor(hosts[1], *invitation)
    assert (right.end(), there.end()) == (0, 0), right.text + there.text


@pytest.mark.slow
def test_the_versions_differ(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    there, invitation = listening(hosts[0], SYNCLINE_KEY=SECRET)
    start = [sys.executable, "-c", SKEWED, "doctor"]
    here = doctor(hosts[1], *invitation, "--report", report, start=start, SYNCLINE_KEY=SECRET)
    assert (here.end(), there.end()) == (1, 1), here.text + there.text
    assert wrong(report) == {"versions"}
    assert "syncline 0.0.7 here, " in here.text
    assert "install the same version on both" in here.text


@pytest.mark.slow
def test_the_link_is_slow(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    """10 Mbit/s from the joiner to the listener; the other direction has no limit."""
    report = tmp_path / "report.json"
    shape = ("tc", "qdisc", "add", "dev", LINK, "root", "tbf", "rate", "10mbit", "burst", "32kb", "latency", "50ms")
    hosts[1].run(*shape)
    there, invitation = listening(hosts[0], SYNCLINE_KEY=SECRET)
    here = doctor(hosts[1], *invitation, "--report", report, SYNCLINE_KEY=SECRET)
    assert (here.end(), there.end()) == (1, 1), here.text + there.text
    assert wrong(report) == {"bandwidth there"}
    assert checks(report)["bandwidth there"]["figures"]["bytes_per_second"] < 1.5e6
    assert "an update of 25 million parameters takes" in here.text


@pytest.mark.slow
def test_the_address_is_on_the_wrong_interface(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    """A network of containers comes first; and the other host has no way into that network."""
    report = tmp_path / "report.json"
    bridge = f"172.17.{hosts[0].address.split('.')[2]}.1"
    ip("-n", hosts[0].name, "link", "add", "docker0", "type", "bridge")
    ip("-n", hosts[0].name, "address", "add", f"{bridge}/24", "dev", "docker0")
    ip("-n", hosts[0].name, "link", "set", "docker0", "up")
    there, invitation = listening(hosts[0], "--report", report, at=f"{bridge}:7070", SYNCLINE_KEY=SECRET)
    assert "address: " in there.text
    here = doctor(hosts[1], *invitation, SYNCLINE_KEY=SECRET)
    assert here.end() == 1, here.text
    assert f"there is no route to {bridge}" in here.text
    assert f"this host's addresses are {hosts[1].address} on {LINK}" in here.text
    there.interrupt()
    assert there.end() == 130
    named = next(line for line in there.lines if " address: " in line)
    assert named.startswith("wrong"), named
    assert f"use --listen or --at with another one: {hosts[0].address} on {LINK}" in named


@pytest.mark.slow
def test_the_name_of_the_host_leads_to_loopback(hosts: tuple[Host, Host]) -> None:
    (Path("/etc/netns") / hosts[0].name / "hosts").write_text(f"127.0.1.1 {socket.gethostname()}\n")
    here = doctor(hosts[0])
    assert here.end() == 1, here.text
    assert "leads to 127.0.1.1, where only this host itself can connect" in here.text


@pytest.mark.slow
def test_one_host_alone_is_well(hosts: tuple[Host, Host]) -> None:
    here = doctor(hosts[0])
    assert here.end() == 0, here.text
    for each in ("versions", "processors", "shared memory", "open files", "clock", "host name", "address", "listening"):
        assert f" {each}: " in here.text


@pytest.mark.slow
def test_a_stranger_does_not_disturb(tmp_path: Path) -> None:
    """Connections that send nonsense, or nothing, cost nobody else anything."""
    with loopback() as here:
        there = doctor(here, "--listen", "127.0.0.1:0")
        place = there.line_with("run there: ").split()[-1]
        host, port = place.rsplit(":", 1)
        strangers = [socket.create_connection((host, int(port))) for _ in range(20)]
        for number, each in enumerate(strangers):
            each.sendall(b"\x80" * number * 7)
        joined = doctor(here, "--join", place)
        joined.line_with("way back: the other host can connect to 127.0.0.1:")
        joined.end()
        there.end()
        for each in strangers:
            each.close()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--listen", "127.0.0.1:7070", "--join", "127.0.0.1:7070"], "--join: cannot be used with --listen"),
        (["--listen", "7070"], "--listen: '7070' has no port"),
        (["--join", "127.0.0.1:0"], "--join: '127.0.0.1:0' is not a usable address"),
        (["--join", "192.0.2.7:7070"], "--key-file: 192.0.2.7 is not a loopback address; connections between hosts"),
        (["--joiners", "2"], "--joiners: says how many hosts --listen waits for"),
        (["--port", "0"], "--port: must be at least 1 and at most 65,535, not 0"),
        (["--port", "65536"], "--port: must be at least 1 and at most 65,535, not 65536"),
        (["--listen", "--port", "7070"], "--port: is not needed with --listen"),
    ],
)
def test_options_that_make_no_sense(tmp_path: Path, options: list[str], text: str) -> None:
    assert commands.refused(tmp_path, "doctor", *options).startswith(text)


def test_a_key_that_others_can_read(tmp_path: Path) -> None:
    make_key_file(tmp_path / "key")
    (tmp_path / "key").chmod(0o644)
    done = commands.in_this_process(tmp_path, "doctor", "--key-file", "key")
    assert done.code == 1, done.story
    assert "is accessible to other users (mode 0644); run: chmod 600 " in done.output
    (tmp_path / "program.py").touch()
    place = ("--listen", "127.0.0.1:0")
    for words in (("doctor", *place), ("run", *place, "program.py"), ("run", "--join", "127.0.0.1:9", "program.py")):
        said = commands.refused(tmp_path, words[0], "--key-file", "key", *words[1:])
        assert "key is accessible to other users (mode 0644); run: chmod 600 " in said
