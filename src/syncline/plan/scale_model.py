"""A smaller cluster whose links and processors have the same load, so that a plan takes seconds.

1. In an exchange, a worker's link carries (n - 1) / p models per step. With fewer workers and links that are slower by
   the same factor, every link is as busy as before. The same holds for the model: a smaller one on slower links.
2. With co-located servers, a link carries 2 (n - 1) / n models, and a machine gets as many messages however many
   machines there are.
3. With servers of their own, a server's link carries workers / servers models, and a worker's link one model. Both stay
   the same if the ratio does.
4. A simulated iteration has at most `MESSAGES` messages: buckets are larger if there would be more, and a message then
   takes the processor time of as many as it stands for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from syncline import units
from syncline.engines.coordinator.network_defaults import between_hosts
from syncline.layout import VALUE_BYTES
from syncline.placement import Elastic
from syncline.plan.candidates import Candidate, Form
from syncline.plan.machines import Machines
from syncline.spec import parse

PEERS = 8
"""The most simulated workers of an exchange, and the most machines with co-located servers."""

TREE_NODES = 16
"""The most simulated nodes of a tree."""

SPLIT_MACHINES = 16
"""The most simulated machines of a split."""

MESSAGES = 1500
"""The most pushes and answers of a simulated iteration."""

LARGEST_BUCKET = 512 << 20

EXCHANGE_BYTES = 16 << 20
"""The largest simulated model of an exchange."""


@dataclass(frozen=True)
class ScaleModel:
    """The simulated cluster. The factors say by how much its links are slower and its messages take longer."""

    workers: int
    servers: int
    links: float = 1.0
    handling: float = 1.0
    real_servers: int = 0
    """The number of servers that the simulated ones stand for."""
    model: float = 1.0
    """By how much the model is smaller, and the links slower in addition."""


def scaled(candidate: Candidate, machines: Machines, model_bytes: int) -> ScaleModel:
    """The smaller cluster for a candidate."""
    everyone = machines.workers
    if candidate.form is Form.SPLIT:
        return _split(everyone, candidate.servers)
    if candidate.form is Form.TREE:  # a node has as many neighbours in a smaller tree, unless it is a star
        nodes = min(everyone, TREE_NODES)
        return ScaleModel(nodes, nodes, real_servers=everyone)
    few = min(everyone, PEERS)
    if candidate.form is Form.COLOCATED:
        return ScaleModel(few, few, ((few - 1) / few) / ((everyone - 1) / everyone), real_servers=everyone)
    fewer = (few - 1) / (everyone - 1)
    return ScaleModel(few, 0, fewer, 1 / fewer, model=min(1.0, EXCHANGE_BYTES / model_bytes))


def _split(everyone: int, servers: int) -> ScaleModel:
    if everyone <= SPLIT_MACHINES:
        return ScaleModel(everyone - servers, servers, real_servers=servers)
    few = min(max(1, round(servers * SPLIT_MACHINES / everyone)), SPLIT_MACHINES - 1)
    simulated, real = (SPLIT_MACHINES - few) / few, (everyone - servers) / servers
    return ScaleModel(SPLIT_MACHINES - few, few, simulated / real if real > 1 else 1.0, real_servers=servers)


def server_words(
    said: Mapping[str, str], values: int, latency: float, scale: ScaleModel
) -> tuple[dict[str, str], float]:
    """The settings that a run between these hosts would choose, for the simulated servers.

    Also returns how many real messages a simulated one stands for.
    """
    lane = between_hosts(values // scale.real_servers, [said], 2 * latency)
    bucket = units.size(lane["bucket"], "bucket")
    messages = 2 * scale.workers * max(1.0, values * VALUE_BYTES / bucket)
    coarser = min(max(1.0, messages / MESSAGES), max(1.0, LARGEST_BUCKET / bucket))
    found = {**lane, "bucket": _size(bucket * coarser)}
    ratio = scale.real_servers / scale.servers
    if "window" in lane:
        found["window"] = _size(units.size(lane["window"], "window") * coarser * ratio)
    if "placement" in lane:
        part = values * VALUE_BYTES / scale.servers
        stripes = min(parse("placement", lane["placement"]).stripes * ratio, part / bucket / coarser)
        found["placement"] = str(Elastic(max(1, int(stripes))))
    return found, coarser


def _size(size: float) -> str:
    return f"{max(1, round(size / 1024))}KiB"
