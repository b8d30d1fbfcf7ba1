"""The states of the random number generators that a training program uses: torch, numpy and Python's own."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def random_states() -> dict[str, Any]:
    """Copies of all states, as plain values and arrays."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    found: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": [kind, np.asarray(keys).astype(np.int64), *rest],
        "python": random.getstate(),
    }
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        found["cuda"] = torch.cuda.get_rng_state_all()
    return found


def restore_random_states(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    kind, keys, *rest = states["numpy"]
    np.random.set_state((kind, np.asarray(keys).astype(np.uint32), *rest))
    random.setstate(states["python"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])
