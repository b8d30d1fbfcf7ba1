"""A server goes on under another sync model, as the coordinator says."""

from __future__ import annotations

from syncline.effects import Change
from syncline.engines.net.control import NewTerms
from syncline.engines.server.held_model import HeldModel
from syncline.errors import UsageError
from syncline.spec import one_of, parse
from syncline.sync import Release

LONGEST = 1000
"""Characters of what the coordinator is told."""


def take_terms(held: HeldModel | None, terms: NewTerms) -> str:
    """Change the model that this server holds; what is in the way, if something is.

    A server that was not told yet what is trained has nothing to change: what it will be told has the new model.
    """
    if held is None:
        return ""
    try:
        model = parse("sync", terms.sync)
        release = one_of(Release, terms.release, "release")
    except UsageError as error:
        return error.problem[:LONGEST]
    held.change(Change(model, release))
    return ""
