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

    Doubled from what one copy's state takes at least until a layout fits, then from there upwards
    one by one; a number for which no layout exists (7 machines ...) is passed over. Memory alone
    decides.
    """
    cluster = space.cluster
    room = cluster.gpu.memory * USABLE * cluster.gpus_per_node
    least = most = max(1, int(least_bytes(space) // room))
    while not fits(replace(space, cluster=replace(cluster, nodes=most))):
        most = 1 << most.bit_length()  # the next power of two: it divides as the model does
        if most * cluster.gpus_per_node > MOST_GPUS:
            return None
    for nodes in range(least, most):
        if fits(replace(space, cluster=replace(cluster, nodes=nodes))):
            return nodes
    return most


def least_bytes(space: Space) -> Bytes:
    """Bytes that one copy of the model's trained state takes on all GPUs together at least: a
    16-bit weight, and Adam's two moments in 16 bit, of what is trained."""
    tensors = space.model.tensors()
    return sum(t.numel * (6 if t.trained else 2) for t in tensors)


def fits(space: Space) -> bool:
    """Is there a layout of the space that fits in memory?"""
    return any(
        memory(space.model, space.cluster, ladder[0], brief=True).fits for ladder in ladders(space)
    )
