"""How much memory a machine needs, at most, as a multiple of the model.

A worker holds parameters and gradients (2), and Syncline's copy of parameters and updates (2). The state of the user's
optimizer and the activations come on top: a plan does not know them.
"""

from __future__ import annotations

from syncline.nodes.topologies import edges_of, neighbours_of
from syncline.plan.candidates import Candidate, Form

TRAINING = 2
LANE = 2

NODE, NEIGHBOUR, COPIES = 4, 6, 6
"""What a node of a tree needs, for each neighbour, and for copies (docs/design/tree.md)."""

FEW_PARTS = 4
"""Up to this many ranges, an exchange keeps p + 1 models of updates, and otherwise 2 p + 1 (docs/exchange.md)."""


def memory_of(candidate: Candidate, model_bytes: int, machines: int) -> int:
    """The bytes that a machine needs."""
    return int(model_bytes * models_of(candidate, machines))


def models_of(candidate: Candidate, machines: int) -> float:
    """The same as a multiple of the model; for a split, of the kind of machine that needs more."""
    match candidate.form:
        case Form.RING:
            return TRAINING + 1  # DDP's buckets
        case Form.EXCHANGE:
            parts = candidate.parts
            window = parts + 1 if parts <= FEW_PARTS else 2 * parts + 1
            residuals = machines - 1 if candidate.codec != "dense" else 0
            return TRAINING + LANE + window + 1 + residuals
        case Form.TREE:
            return TRAINING + LANE + NODE + COPIES + NEIGHBOUR * _neighbours(candidate, machines)
        case Form.COLOCATED:
            return TRAINING + LANE + _server(candidate, machines, machines)
        case Form.SPLIT:
            return max(TRAINING + LANE, _server(candidate, machines - candidate.servers, candidate.servers))


def _neighbours(candidate: Candidate, machines: int) -> int:
    """The most neighbours that a node of the tree has."""
    around = neighbours_of(edges_of(candidate.words["topology"], machines))
    return max(map(len, around.values()), default=0)


def _server(candidate: Candidate, workers: int, servers: int) -> float:
    """A server's part of the model, of each worker's update of a round, and of what it remembers for a reply codec."""
    remembered = workers if "reply_codec" in candidate.words else 0
    return (2 + workers + remembered) / servers
