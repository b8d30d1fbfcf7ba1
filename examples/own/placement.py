"""A placement as a function of the tables: each server gets large and small tables.

syncline train --servers 2 --placement own.placement.alternate
"""

from collections.abc import Sequence

from syncline.layout import Table


def alternate(tables: tuple[Table, ...], servers: int) -> list[Sequence[str]]:
    """Sort the tables by size, and give every `servers`-th table to the same server."""
    names = [table.name for table in sorted(tables, key=lambda table: table.size)]
    return [names[server::servers] for server in range(servers)]
