"""Tokens: each process has its own, and cannot derive that of another from it."""

from __future__ import annotations

from itertools import combinations

from syncline.engines.net.tokens import derived, new_token, peer_pass, same, server_pass
from syncline.engines.net.wiring import Wiring
from syncline.strategies.allowed_parts import EVERY_PART

ROLES = [("launcher", -1), *((role, number) for role in ("worker", "server") for number in (0, 1, 11))]


def test_every_process_has_a_token_of_its_own() -> None:
    run = Wiring(run="run", token=new_token())
    made = [run.of(role, number).token for role, number in ROLES]
    assert len({run.token, *made}) == len(ROLES) + 1
    assert run.of("worker", 1).token == made[ROLES.index(("worker", 1))]
    assert Wiring(token=new_token()).of("worker", 1).token not in made


def test_a_process_of_the_launcher_believes_its_coordinator() -> None:
    worker = Wiring(token="x", allow_parts="some.module").of("worker", 3)
    assert (worker.worker, worker.allow_parts) == ("3", EVERY_PART)
    assert Wiring(token="x").of("server", 3).worker == ""


def test_passes_differ_by_worker_incarnation_model_and_peer() -> None:
    passes = [server_pass(secret, worker, inc) for secret in ("a", "b") for worker in (0, 1) for inc in (0, 1)]
    passes += [peer_pass(own, caller) for own in passes[:2] for caller in (0, 1)]
    assert all(a != b for a, b in combinations(passes, 2))
    assert derived("s", "worker", 1, 11) != derived("s", "worker", 11, 1)


def test_a_token_that_is_not_known_cannot_be_shown() -> None:
    assert same("abc", "abc")
    assert not same("abc", "abd")
    assert not same("", "")
    assert not same("\u00e9", "e")
