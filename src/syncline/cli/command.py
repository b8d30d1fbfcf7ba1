"""A command that refuses options without a text: `--lane ""` is a mistake in a script, not the default."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

from syncline.errors import UsageError


class StrictCommand(TyperCommand):
    """A command whose options and single arguments must not be empty."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        for param in self.get_params(ctx):
            words = given.get(param.name)
            if param.nargs == 1 and "" in (words if isinstance(words, list) else [words]):
                name = param.opts[0] if param.param_type_name == "option" else param.metavar
                raise UsageError(str(name), "is empty; leave it out, or give it a value")
        return super().parse_args(ctx, args)
