"""Which parts a text from another process may name: shipped ones, and those of the modules that the user allows.

Parsing a text that names a user-defined part imports its module and calls what it finds there. So a process checks a
text that its own user has not written before it parses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from syncline.errors import UsageError
from syncline.spec import own_names

OPTION = "--allow-parts"

EVERY_PART = "*"


@dataclass(frozen=True)
class AllowedParts:
    """`modules`: names of modules, with commas between them; `*`: every module; empty: shipped parts only."""

    modules: str = ""

    def check(self, settings: Mapping[str, str], own: Mapping[str, str] | None = None) -> None:
        """Raise `UsageError` if a setting names a part that is not allowed; `own`: settings that are our user's."""
        ours = {name for words in (own or {}).values() for name in own_names(words)}
        for key, words in settings.items():
            for name in own_names(words):
                if name not in ours and not self._allows(name):
                    module = name.rpartition(".")[0]
                    problem = f"{words!r} comes from another process and names {name}, which is not a shipped part"
                    raise UsageError(key, f"{problem}; to load it here, use {OPTION} {module}")

    def _allows(self, name: str) -> bool:
        allowed = self.modules.split(",") if self.modules else []
        return self.modules == EVERY_PART or any(name.startswith(f"{module}.") for module in allowed)


def listed(modules: list[str] | None) -> str:
    """The modules that the user has named with the option, as `AllowedParts` takes them."""
    for module in modules or ():
        if not all(word.isidentifier() for word in module.split(".")):
            raise UsageError(OPTION, f"{module!r} is not the name of a module, like mypackage.models")
    return ",".join(modules or ())
