"""The command lines that start a candidate, by machine.

1. `syncline run` on the first machine listens, and the others join it. In mode `gradients` a run that trains accepts no
   new workers, so such a candidate has no commands.
2. A run begins with a server on its first machine, which trains too. So in a split the first machine does both.
3. Recipes are trained by `syncline train`, on one host.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from syncline.plan.candidates import Candidate, Form
from syncline.plan.model import PlannedModel

KEY_FILE = "syncline.key"
EVERYWHERE = "0.0.0.0"
PORT = 7070
FIRST = "FIRST-MACHINE"
"""Stands for the address of the first machine, if the user does not give it."""


@dataclass(frozen=True)
class StartCommand:
    """A command line, and where to type it."""

    where: str
    words: tuple[str, ...]

    @property
    def line(self) -> str:
        return shlex.join(self.words)


def commands_of(
    candidate: Candidate, model: PlannedModel, machines: int, address: str = "", data: str = ""
) -> tuple[StartCommand, ...]:
    """The commands, in the order in which to type them; `address`: where the first machine listens.

    `data`: the folder of a recipe that reads files.
    """
    if model.recipe is not None:
        return _train(candidate, model.recipe, machines, data)
    if not candidate.joinable:
        return ()
    listen = address or f"{EVERYWHERE}:{PORT}"
    join = address or f"{FIRST}:{PORT}"
    servers = () if candidate.form is Form.EXCHANGE else ("--servers", "1")
    key = () if _is_near(listen) else ("--key-file", KEY_FILE)
    first = ("syncline", "run", "-n", "1", *servers, *options(candidate), "--listen", listen, *key)
    found = [StartCommand("on the first machine", (*first, *model.program))]
    for where, words in _joins(candidate, machines):
        program = model.program if words[1] != "0" else ()
        found.append(StartCommand(where, ("syncline", "run", "--join", join, *key, *words, *program)))
    return tuple(found)


def _is_near(address: str) -> bool:
    """Whether this is a loopback address, which needs no key."""
    host = address.rpartition(":")[0].strip("[]")
    return host in ("localhost", "::1") or host.startswith("127.")


def _joins(candidate: Candidate, machines: int) -> Sequence[tuple[str, tuple[str, ...]]]:
    """Which machines join, and with how many workers and servers."""
    groups: list[tuple[int, tuple[str, ...]]]
    match candidate.form:
        case Form.EXCHANGE:
            groups = [(machines - 1, ("-n", "1"))]
        case Form.SPLIT:
            groups = [
                (candidate.servers - 1, ("-n", "0", "--servers", "1")),
                (machines - candidate.servers, ("-n", "1")),
            ]
        case _:
            groups = [(machines - 1, ("-n", "1", "--servers", "1"))]
    return [(_where(count), words) for count, words in groups if count > 0]


def _where(count: int) -> str:
    return "on another machine" if count == 1 else f"on each of {count} other machines"


def _train(candidate: Candidate, recipe: str, machines: int, data: str) -> tuple[StartCommand, ...]:
    if candidate.form is Form.RING:
        return ()
    servers = machines if candidate.form is Form.COLOCATED else candidate.servers
    counts = ("--workers", str(machines - candidate.servers), *(("--servers", str(servers)) if servers else ()))
    folder = ("--data", data) if data else ()
    words = ("syncline", "train", recipe, *folder, *counts, *options(candidate))
    return (StartCommand("on one host, where recipes are trained", words),)


def options(candidate: Candidate) -> tuple[str, ...]:
    """The settings of a candidate, as options."""
    words = dict(candidate.words)
    kind = words.pop("strategy", None)
    if kind is not None:
        return ("--strategy", f"{kind}:{','.join(f'{key}={word}' for key, word in words.items())}")
    return tuple(each for key, word in words.items() for each in (f"--{key.replace('_', '-')}", word))
