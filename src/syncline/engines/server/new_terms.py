"""Change the sync model of a server when the coordinator says so."""

from __future__ import annotations

from syncline.effects import Change
from syncline.engines.net.control import NewTerms
from syncline.engines.server.held_model import HeldModel
from syncline.errors import UsageError
from syncline.spec import one_of, parse
from syncline.strategies.allowed_parts import AllowedParts
from syncline.sync import Release

LONGEST = 1000
"""The most characters of an answer to the coordinator."""


def take_terms(held: HeldModel | None, terms: NewTerms, allowed: AllowedParts) -> str:
    """Change the sync model, if it is allowed here; return the problem, or "".

    A server that does not know the model yet has nothing to change: the coordinator will send it the new settings.
    """
    if held is None:
        return ""
    try:
        allowed.check({"sync": terms.sync})
        model = parse("sync", terms.sync)
        release = one_of(Release, terms.release, "release")
    except UsageError as error:
        return error.problem[:LONGEST]
    held.change(Change(model, release))
    return ""
