"""What is played for one machine is what each of the equal machines would have done."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from commsim.collectives.algorithms.grouped import Grouped
from commsim.collectives.algorithms.ring import Ring
from commsim.collectives.collective import Collective
from commsim.engine import compiled
from commsim.engine.cluster_network import ClusterNetwork
from commsim.engine.folding import Folded
from commsim.engine.network import Laid, Network, lay
from commsim.engine.plan import Times, make_plan, punctual
from commsim.topology.load import load_cluster


def played(ring: Ring, n: int, network: Network, operation: str) -> tuple[Laid, Times]:
    laid = lay(ring.schedule(Collective(operation, n * 4096), n, 2), network)
    # A hop takes longer between machines than inside, so that the rounds are not all alike.
    far = np.zeros(len(laid.ways), dtype=np.bool_)
    owner = np.repeat(np.arange(len(laid.ways)), np.diff(laid.ways.start))
    far[owner[network.over_network[laid.ways.crossing]]] = True
    laid = replace(laid, ways=replace(laid.ways, latency=np.where(far, 7e-6, 1e-6)))
    return laid, compiled.play(make_plan([punctual(laid)], network.capacity))


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize(("preset", "nodes"), [("dgx-h100", 4), ("aws-p4d", 3), ("gh200", 6)])
def test_every_op_happens_when_its_images_do(preset: str, nodes: int, operation: str) -> None:
    cluster = load_cluster(preset, nodes=nodes)
    n, per_host = cluster.n_ranks, cluster.gpus_per_node
    hosts = 2 if per_host == 1 else 1
    whole = ClusterNetwork(cluster=cluster)
    full, full_times = played(Ring(), n, whole, operation)
    part, part_times = played(
        Ring(period=hosts * per_host), n, Folded(base=whole, whole=whole, hosts=hosts), operation
    )
    found = {
        (op.source, op.channel, op.round): part_times.arrived[i]
        for i, op in enumerate(part.schedule)
    }
    assert len(found) * nodes == len(full.schedule) * hosts
    for i, op in enumerate(full.schedule):
        image = found[op.source % (hosts * per_host), op.channel, op.round]
        assert full_times.arrived[i] == pytest.approx(image, rel=1e-12)


@pytest.mark.parametrize(("preset", "nodes"), [("dgx-h100", 4), ("aws-p4d", 3)])
def test_an_all_to_all_folds_too(preset: str, nodes: int) -> None:
    cluster = load_cluster(preset, nodes=nodes)
    n, per_host = cluster.n_ranks, cluster.gpus_per_node
    whole = ClusterNetwork(cluster=cluster)
    collective = Collective("all_to_all", n * 4096)
    ends = []
    for window in (3, 1000):
        for period, network in (
            (0, whole),
            (per_host, Folded(base=whole, whole=whole, hosts=1)),
        ):
            schedule = Grouped(window=window, period=period).schedule(collective, n)
            laid = lay(schedule, network)
            latency = np.where(np.diff(laid.ways.start) > 0, 2e-6, 0.0)
            laid = replace(laid, ways=replace(laid.ways, latency=latency))
            plan = make_plan([punctual(laid)], network.capacity)
            times = compiled.play(plan).arrived[schedule.nbytes > 0]
            ends.append(times.reshape(n, -1).max(axis=1))  # distance by distance
        assert times.size * nodes == n * n
        assert ends[-1] == pytest.approx(ends[-2], rel=1e-12)
