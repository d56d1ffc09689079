"""In which order a ring should go, on machines whose wiring is known."""

from __future__ import annotations

import itertools
from itertools import pairwise

import pytest

from commsim.advice import ring_orders
from commsim.collectives.collective import Collective
from commsim.topology.capacity import scale_up_links
from commsim.topology.load import load_cluster


def test_on_a_dgx1_the_best_ring_keeps_to_nvlink() -> None:
    # In a hybrid cube mesh 0-1-2-...-7 leaves NVLink between 3 and 4, and 7 and 0.
    cluster = load_cluster("dgx-1v")
    best, *others = ring_orders(Collective("all_reduce", 1 << 26), cluster)
    links = scale_up_links(cluster.node)
    names = [cluster.node.gpus[r].name for r in best.ranks]
    assert all(b in links[a] for a, b in pairwise([*names, names[0]]))
    given = next(o for o in others if o.name == "as given")
    assert given.duration > 1.5 * best.duration  # its hops pass through a GPU between


def test_packed_beats_spread_between_machines() -> None:
    cluster = load_cluster("dgx-h100", nodes=2)
    ranks = (0, 8, 1, 9, 2, 10, 3, 11)
    found = {
        o.name: o for o in ring_orders(Collective("all_reduce", 1 << 26, ranks=ranks), cluster)
    }
    # Packed, one rank of each machine sends over the network; spread, every one does: by itself
    # through its own NIC, so both end when the NIC has sent 2 (n-1)/n of the buffer or NVLink has.
    assert found["packed"].ranks == (0, 1, 2, 3, 8, 9, 10, 11)
    assert found["as given"].duration > found["packed"].duration
    with pytest.raises(StopIteration):
        next(o for o in found.values() if o.duration < found["packed"].duration * (1 - 1e-9))


def test_the_shortest_is_the_best_of_all_orders_of_a_small_group() -> None:
    cluster = load_cluster("dgx-1v")
    group = (0, 2, 5, 6)
    best = ring_orders(Collective("all_reduce", 1 << 26, ranks=group), cluster)[0]
    every = [
        ring_orders(Collective("all_reduce", 1 << 26, ranks=(0, *rest)), cluster)
        for rest in itertools.permutations(group[1:])
    ]
    fastest = min(o.duration for orders in every for o in orders)
    assert best.duration == pytest.approx(fastest, rel=1e-4)
