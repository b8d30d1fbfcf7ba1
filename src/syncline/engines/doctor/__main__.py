"""The checks of this host that matter for a start that takes long; prints what is wrong.

    python -m syncline.engines.doctor [network]

`network`: also the checks of this host's place in the network.
"""

from __future__ import annotations

import sys

from syncline.engines.doctor.finding import Status
from syncline.engines.doctor.host_checks import about_this_host
from syncline.engines.doctor.network_checks import about_the_network

ALSO = ("processors", "address")
"""Checks whose notes explain a slow start, too."""


def main() -> None:
    findings = about_this_host() + (about_the_network() if "network" in sys.argv[1:] else [])
    for each in findings:
        if each.status is Status.WRONG or (each.status is Status.NOTE and each.check in ALSO):
            print(each.line(), flush=True)


if __name__ == "__main__":
    main()
