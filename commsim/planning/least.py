"""The fewest machines on which a model can be trained at all."""

from __future__ import annotations

from dataclasses import replace

from commsim.planning.space import Space, ladders
from commsim.units import Bytes
from commsim.workload.memory import USABLE, memory

MOST_GPUS = 1 << 15


def least_nodes(space: Space) -> int | None:
    """The least number of machines of the space's cluster that hold the model; None if not even
    MOST_GPUS do.

    Tried from what the weights, gradients and Adam's moments of one copy take at least upwards; a
    number for which no layout exists (7 machines ...) is passed over. Memory alone decides.
    """
    cluster = space.cluster
    room = cluster.gpu.memory * USABLE * cluster.gpus_per_node
    nodes = max(1, int(least_bytes(space) // room))
    while nodes * cluster.gpus_per_node <= MOST_GPUS:
        if _fits(replace(space, cluster=replace(cluster, nodes=nodes))):
            return nodes
        nodes += 1
    return None


def least_bytes(space: Space) -> Bytes:
    """Bytes that one copy of the model's trained state takes on all GPUs together at least: a
    16-bit weight, and Adam's two moments in 16 bit, of what is trained."""
    tensors = space.model.tensors()
    return sum(t.numel * (6 if t.trained else 2) for t in tensors)


def _fits(space: Space) -> bool:
    return any(
        memory(space.model, space.cluster, ladder[0], brief=True).fits for ladder in ladders(space)
    )
