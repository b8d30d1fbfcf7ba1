"""A placement: heavy and light tables alternate, by a function of the tables.

syncline train --servers 2 --placement own.placement.alternate
"""

from collections.abc import Sequence

from syncline.layout import Table


def alternate(tables: tuple[Table, ...], servers: int) -> list[Sequence[str]]:
    """Sorted by size, each server takes every `servers`-th table."""
    names = [table.name for table in sorted(tables, key=lambda table: table.size)]
    return [names[server::servers] for server in range(servers)]
