"""A placement of your own, as a function: it deals the tables to the servers in order of size.

syncline train --servers 2 --placement own.placement.alternate
"""

from collections.abc import Sequence

from syncline.layout import Table


def alternate(tables: tuple[Table, ...], servers: int) -> list[Sequence[str]]:
    """Sort the tables by size and give each server every `servers`-th one."""
    names = [table.name for table in sorted(tables, key=lambda table: table.size)]
    return [names[server::servers] for server in range(servers)]
