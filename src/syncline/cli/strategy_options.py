"""The options that describe a strategy: their names, help and reading, once for every command that has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

Strategy = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        help="Who talks to whom: server (the default), or the path of your own class, e.g. mypackage.Ring:every=4.",
    ),
]
Patience = Annotated[
    str | None,
    typer.Option(help="Send an unanswered push again after this long, e.g. 10s; never: do not. Default: 30s."),
]
Sync = Annotated[list[str] | None, typer.Option(help="bsp, asp, ssp:3, ...; once for all servers, or once each.")]
Release = Annotated[str | None, typer.Option(help="lazy or soft.")]
Mode = Annotated[str | None, typer.Option(help="Who optimises: gradients, changes or rule.")]
Rule = Annotated[
    str | None, typer.Option(help="The servers' rule: sgd:0.1, adam:0.001, fasgd:0.005, ...; selects mode rule.")
]
Gate = Annotated[
    str | None, typer.Option(help="What is worth sending: every:push=2,fetch=2, budget:1MB, ... See docs.")
]
Codec = Annotated[str | None, typer.Option(help="How updates are written: topk:0.01, int8, ... See docs.")]
ReplyCodec = Annotated[str | None, typer.Option(help="How parameters are written, as changes.")]
Placement = Annotated[str | None, typer.Option(help="elastic, uniform, roundrobin or balanced.")]
Seed = Annotated[int | None, typer.Option(help="For everything that is random. Default: 0.")]


def words(*, sync: Sequence[str] | None, seed: int | None, **others: str | None) -> dict[str, str]:
    """What was said, as the settings of a run: without what was left out."""
    said = {**others, "sync": " ".join(sync) if sync else None, "seed": None if seed is None else str(seed)}
    return {key: word for key, word in said.items() if word is not None}
