"""A request is checked before it runs: addresses, keys, and which setting overrides which."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncline.engines.launch.child import inherited
from syncline.engines.launch.plan import Plan, checked
from syncline.engines.net.addresses import listen, parse
from syncline.engines.net.wiring import Wiring
from syncline.errors import UsageError

PLAN = Plan(["python", "program.py"])


def test_the_command_line_beats_the_file() -> None:
    plan = Plan([], settings={"sync": "asp"}, config={"sync": "ssp:3", "seed": "7"}, file="run.toml")
    found = plan.settled()
    assert found["sync"] == ("asp", "command line")
    assert found["seed"] == ("7", "run.toml")
    assert found["release"] == ("lazy", "default")
    assert plan.words() == {"sync": "asp", "seed": "7"}


def test_a_rule_on_the_command_line_beats_a_mode_in_the_file() -> None:
    assert Plan([], settings={"rule": "sgd:0.1"}, config={"mode": "changes"}).words() == {"rule": "sgd:0.1"}


@pytest.mark.parametrize(
    ("settings", "config", "named"),
    [
        ({}, {"sync": "sometimes"}, "strategy.sync"),
        ({"sync": "sometimes"}, {"sync": "asp"}, "sync"),
        ({}, {"seed": "-1"}, "seed"),
    ],
)
def test_an_error_names_the_option_or_the_key_of_the_file(
    settings: dict[str, str], config: dict[str, str], named: str
) -> None:
    with pytest.raises(UsageError) as caught:
        checked(Plan([], settings=settings, config=config))
    assert caught.value.option == named


HERE = "127.0.0.1:7070"


@pytest.mark.parametrize(
    ("plan", "where", "option"),
    [
        (Plan([], workers=0), {}, "--workers"),
        (Plan([], servers=0), {}, "--servers"),
        (Plan([], workers=-1), {"join": HERE}, "--workers"),
        (Plan([], workers=0, servers=0), {"join": HERE}, "--workers"),
        (Plan([], wiring=Wiring(lane="pigeon")), {}, "--lane"),
        (PLAN, {"listen": "127.0.0.1:0", "join": HERE}, "--join"),
        (PLAN, {"join": "127.0.0.1:0"}, "--join"),
        (PLAN, {"join": "0.0.0.0:7070"}, "--join"),
        (Plan([], settings={"reply_codec": "fp16"}), {"join": HERE}, "--reply-codec"),
        (Plan([], config={"sync": "asp"}), {"join": HERE}, "--config"),
        (Plan([], wiring=Wiring(trace="traces")), {"join": HERE}, "--trace"),
    ],
)
def test_invalid_options_are_refused_by_name(plan: Plan, where: dict[str, str], option: str) -> None:
    with pytest.raises(UsageError) as caught:
        checked(plan, **where)  # type: ignore[arg-type]
    assert caught.value.option == option


def test_a_launcher_can_join_with_servers_only() -> None:
    plan = checked(Plan([], workers=0, servers=1), join="127.0.0.1:7070")
    assert plan.joins
    assert not checked(PLAN).joins


def test_a_key_is_made_only_where_it_can_be_used(tmp_path: Path) -> None:
    key = tmp_path / "key"
    plan = Plan([], wiring=Wiring(key_file=str(key)))
    with pytest.raises(UsageError, match=r"--listen: 192\.0\.2\.7 is not an address of this host"):
        checked(plan, listen="192.0.2.7:0")
    assert not key.exists()
    checked(plan, listen="0.0.0.0:0", dry=True)
    assert not key.exists()
    checked(plan, listen="0.0.0.0:0")
    assert key.exists()


def test_a_name_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names_stand_for(monkeypatch, "127.0.0.1")
    assert checked(PLAN, listen="here:0").wiring.listen == "127.0.0.1"
    assert checked(PLAN, join="here:7070").places == ("127.0.0.1:7070",)


def test_all_addresses_of_a_name_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    names_stand_for(monkeypatch, "192.0.2.7", "127.0.0.1")
    assert checked(PLAN, listen="here:0").wiring.listen == "127.0.0.1"
    names_stand_for(monkeypatch, "::1", "127.0.0.1")
    assert checked(PLAN, join="here:7070").places == ("[::1]:7070", "127.0.0.1:7070")


def test_the_key_is_a_matter_of_the_address_not_of_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    names_stand_for(monkeypatch, "192.0.2.7")
    with pytest.raises(UsageError, match=r"--key-file: 192\.0\.2\.7 is not a loopback address"):
        checked(PLAN, join="localhost:7070")
    names_stand_for(monkeypatch, "0.0.0.0")
    with pytest.raises(UsageError, match=r"--listen: 0\.0\.0\.0:0 is not a loopback address"):
        checked(PLAN, listen="localhost:0")


def test_a_port_that_is_taken_is_named() -> None:
    with listen(parse("127.0.0.1:0", "--listen"), "--listen") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"--listen: port {port} of 127"):
            checked(PLAN, listen=f"127.0.0.1:{port}")


def test_nothing_of_another_run_is_passed_on() -> None:
    outside = {"PATH": "/bin", "SYNCLINE_WORKER": "7", "SYNCLINE_PATIENCE": "3", "SYNCLINE_ANYTHING": "x"}
    assert inherited({"PATH": "/", "OMP_NUM_THREADS": "1"}, outside) == {
        "PATH": "/bin", "OMP_NUM_THREADS": "1", "SYNCLINE_PATIENCE": "3",
    }  # fmt: skip


def names_stand_for(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    found = [(0, 0, 0, "", (host, 0)) for host in hosts]
    monkeypatch.setattr("syncline.engines.net.addresses.socket.getaddrinfo", lambda *_, **__: found)
