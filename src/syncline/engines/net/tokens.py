"""Tokens: secrets by which the processes of a run prove who they are. docs/design/engine.md says who has which.

1. The launcher of a run makes the run's secret, or derives it from the key if the run begins on several hosts
   (launch/hosts.py). It gives the secret to the coordinator only. Each process that it starts gets a
   token that is derived from the secret, its role and its number. So the coordinator knows them all without a list.
2. A launcher that joins makes a token of its own, which its processes share. The coordinator remembers the token that
   each number was first used with: nobody else can open a further connection under that number, or return with it.
3. The coordinator gives every worker of a model a pass for the servers, derived from the secret of the model's servers.
   So a server can check any worker's number without asking.
"""

from __future__ import annotations

import hmac
from secrets import token_hex


def new_token() -> str:
    return token_hex(16)


def derived(secret: str, *words: object) -> str:
    """A token for this purpose. Neither the secret nor another token can be derived from it."""
    text = "\0".join(map(str, words))
    return hmac.digest(secret.encode(), text.encode(), "sha256").hex()[:32]


def same(shown: str, expected: str) -> bool:
    """Whether a peer has shown the expected token; nobody can show one that is not known."""
    return bool(expected) and hmac.compare_digest(shown.encode(), expected.encode())


def server_pass(secret: str, worker: int, incarnation: int) -> str:
    """What this worker shows to the servers of a model, which have this secret."""
    return derived(secret, "worker", worker, incarnation)


def peer_pass(own: str, caller: int) -> str:
    """What worker `caller` shows to the worker whose own pass for the servers is `own`."""
    return derived(own, "peer", caller)
