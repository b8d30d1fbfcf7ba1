"""Runs in a worker before its program: Python imports the module `sitecustomize` when it starts.

From then on an exception that ends the program is reported to the launcher, also before `connect()` and after
`session.close()`. This module takes its folder out of PYTHONPATH again, so that processes which the program starts do
not run it, and then runs the user's own `sitecustomize`, which it hides.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path


def _begin() -> None:
    from syncline.engines.failure_report import FailureHook

    folder = str(Path(__file__).parent)
    sys.path.remove(folder)
    rest = os.environ["PYTHONPATH"].removeprefix(folder).removeprefix(os.pathsep)
    os.environ["PYTHONPATH"] = rest
    if not rest:
        del os.environ["PYTHONPATH"]
    sys.excepthook = FailureHook()
    this = sys.modules.pop(__name__)
    try:
        import_module(__name__)
    except ModuleNotFoundError as error:
        if error.name != __name__:
            raise
        sys.modules[__name__] = this  # the user has none


if __name__ == "sitecustomize":
    _begin()
