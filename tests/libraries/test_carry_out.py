"""Schedules of libraries' choices: each provably does what was asked, on any group."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from commsim.collectives.collective import OPERATIONS, ROOTED, Collective
from commsim.collectives.verify import verify
from commsim.libraries.carried import Carried
from commsim.libraries.carry_out import carry_out
from commsim.libraries.library import Choice, Library
from commsim.libraries.lookup import library
from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster
from commsim.units import MIB

SIZES = (0, 1, 1000, MIB)


def choose(
    operation: str,
    nbytes: int,
    cluster: Cluster,
    by: Library | None = None,
    ranks: tuple[int, ...] | None = None,
    root: int | None = None,
) -> tuple[Collective, Choice]:
    asked = Collective(operation, nbytes, ranks=ranks, root=root)
    return asked, (by or library(cluster.default_library)).choose(asked, cluster)


def carried(
    operation: str,
    nbytes: int,
    cluster: Cluster,
    by: Library | None = None,
    *,
    fold: bool = True,
    ranks: tuple[int, ...] | None = None,
) -> Carried:
    asked, choice = choose(operation, nbytes, cluster, by, ranks)
    return carry_out(asked, choice, cluster, fold=fold)


def check(asked: Collective, choice: Choice, cluster: Cluster) -> set[str]:
    """Proves the schedule of every candidate that can run; their names."""
    names = set()
    for candidate in choice.candidates:
        if candidate.available:
            one = replace(choice, chosen=candidate)
            verify(carry_out(asked, one, cluster, fold=True).schedule, asked)
            names.add(candidate.algorithm)
    return names


def group(cluster: Cluster) -> tuple[int, ...]:
    """Ranks out of order, not as many on every machine."""
    n = cluster.n_ranks
    return tuple(dict.fromkeys((n - 1, 0, n // 2, 1, n // 3)))


# ---- NCCL and RCCL ----

CLUSTERS = {
    ("dgx-h100", 1): {"nvls", "ring", "tree", "p2p"},
    ("dgx-h100", 2): {"nvls_tree", "ring", "tree", "p2p"},
    ("dgx-h100", 3): {"nvls_tree", "ring", "tree", "p2p"},
    ("dgx-1v", 2): {"ring", "tree", "p2p"},
    ("mi300x", 2): {"ring", "tree", "p2p"},
    ("rtx4090x8", 2): {"ring", "tree", "p2p"},
    ("gb200-nvl72", 2): {"nvls", "ring", "tree", "p2p"},
    ("aws-p5", 2): {"nvls_tree", "ring", "tree", "p2p"},
    ("alps", 3): {"ring", "tree", "p2p"},
    ("gh200", 5): {"ring", "tree", "pat", "p2p"},
    ("mig-a100-1g", 1): {"ring", "tree", "p2p"},
}
"""Algorithms of which some operation has a candidate there."""


@pytest.mark.parametrize(("name", "nodes"), CLUSTERS)
def test_every_candidate_computes_its_operation(name: str, nodes: int) -> None:
    cluster = load_cluster(name, nodes=nodes)
    found = set()
    for operation in OPERATIONS:
        for nbytes in SIZES:
            asked, choice = choose(operation, nbytes, cluster)
            found |= check(asked, choice, cluster)
    assert found >= CLUSTERS[name, nodes]


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter"])
def test_in_network_reduction(operation: str) -> None:
    """With SHARP in the fabric NVLS and CollNet can use it; without, neither can."""
    by = library("nccl", env={"NCCL_COLLNET_ENABLE": "1"})
    for sharp in (True, False):
        cluster = load_cluster("dgx-h100", nodes=3, **{"fabric.sharp": sharp})
        names = check(*choose(operation, MIB, cluster, by), cluster)
        assert ({"nvls", "collnet_direct"} <= names) == sharp


@pytest.mark.parametrize(("name", "nodes"), [("dgx-h100", 3), ("mi300x", 2), ("alps", 3)])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_ranks_out_of_order_and_another_root(name: str, nodes: int, operation: str) -> None:
    cluster = load_cluster(name, nodes=nodes)
    ranks = group(cluster)
    for root in ranks[:2] if operation in ROOTED else (None,):
        asked, choice = choose(operation, MIB, cluster, ranks=ranks, root=root)
        check(asked, choice, cluster)


def test_one_message() -> None:
    cluster = load_cluster("dgx-h100", nodes=2)
    asked, choice = choose("send_recv", MIB, cluster, ranks=(9, 3), root=3)
    schedule = carry_out(asked, choice, cluster, fold=True).schedule
    verify(schedule, asked)
    assert [(op.source, op.destination, op.nbytes) for op in schedule] == [(1, 0, MIB)]


def test_an_uneven_all_to_all() -> None:
    cluster = load_cluster("dgx-h100", nodes=2)
    splits = [[(3 * i + j) % 5 for j in range(16)] for i in range(16)]
    asked = Collective.uneven(splits, dtype="uint8")
    choice = library("nccl").choose(asked, cluster)
    schedule = carry_out(asked, choice, cluster, fold=True).schedule
    verify(schedule, asked)
    assert int(schedule.nbytes.sum()) == sum(map(sum, splits))


@pytest.mark.parametrize("algorithm", ["ring", "tree"])
@pytest.mark.parametrize("nodes", [1, 2])
def test_folded_or_not_it_is_as_many_channels_and_bytes(algorithm: str, nodes: int) -> None:
    cluster = load_cluster("dgx-h100", nodes=nodes)
    by = library("nccl", env={"NCCL_ALGO": algorithm})
    asked, choice = choose("all_reduce", MIB, cluster, by)
    folded, plain = (carry_out(asked, choice, cluster, fold=fold) for fold in (True, False))
    verify(plain.schedule, asked)
    n = cluster.n_ranks
    for each in (folded, plain):
        assert (int(each.schedule.channel.max()) + 1) * each.multiplicity == choice.chosen.channels
        # Up and down a tree, or around a ring: n - 1 links twice, each with all of the bytes.
        assert int(each.schedule.nbytes.sum()) == 2 * (n - 1) * MIB
    assert plain.multiplicity == 1
    assert len(folded.schedule) <= len(plain.schedule)


def test_rings_of_one_nvswitch_are_one() -> None:
    """All channels of a DGX have the same ring; on two of them each rail has one of its own."""
    by = library("nccl", env={"NCCL_ALGO": "ring"})
    one = carried("all_reduce", MIB, load_cluster("dgx-h100"), by)
    assert int(one.schedule.channel.max()) == 0
    two = carried("all_reduce", 64 * MIB, load_cluster("dgx-h100", nodes=2), by)
    assert int(two.schedule.channel.max()) % 8 == 7


def test_a_ring_leaves_every_machine_once_and_all_rails_are_used() -> None:
    cluster = load_cluster("dgx-h100", nodes=3)
    found = carried("all_gather", 64 * MIB, cluster, fold=False)
    used: Counter[tuple[int, int]] = Counter()
    for exits in found.exits:
        leaving = [(rank // 8, nic) for rank, nic in enumerate(exits) if nic >= 0]
        assert [host for host, _ in leaving] == [0, 1, 2]
        used.update(leaving)
    # Each of the eight NICs of each machine carries as many channels as any other.
    assert set(used) == {(host, nic) for host in range(3) for nic in range(8)}
    assert len(set(used.values())) == 1


def test_exits_are_where_the_rings_leave() -> None:
    """A rank with an exit sends to another machine; one without stays inside."""
    found = carried("all_gather", MIB, load_cluster("mi300x", nodes=2))
    schedule, exits = found.schedule, np.array(found.exits)
    leaves = schedule.source // 8 != schedule.destination // 8
    assert ((exits[schedule.channel, schedule.source] >= 0) == leaves).all()


def test_a_plugin_shows_several_nics_as_one() -> None:
    """aws-ofi-nccl: the four NICs on a GPU's PCIe switch are one device, of eight."""
    found = carried("all_gather", MIB, load_cluster("aws-p5", nodes=2))
    assert found.devices == tuple(tuple(range(4 * i, 4 * i + 4)) for i in range(8))
    assert {nic for exits in found.exits for nic in exits} == set(range(-1, 8))


def test_it_does_not_matter_which_equal_machine_was_asked_first() -> None:
    first, second = (
        load_cluster("dgx-h100", nodes=2, **{"node.nics.rate": "399Gbit/s"}) for _ in range(2)
    )
    a, b = (carried("all_gather", MIB, replace(c, node=replace(c.node))) for c in (first, second))
    assert a.exits
    assert a.exits == b.exits


# ---- Gloo and MPI ----


@pytest.mark.parametrize("by", ["gloo", "mpi"])
@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_host_libraries_compute_their_operation(by: str, nodes: int, operation: str) -> None:
    cluster = load_cluster("polaris", nodes=nodes)  # 4 ranks a machine
    for nbytes in (*SIZES, 64 * MIB):
        check(*choose(operation, nbytes, cluster, library(by)), cluster)


@pytest.mark.parametrize("by", ["gloo", "mpi"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_host_libraries_on_any_group(by: str, operation: str) -> None:
    cluster = load_cluster("dgx-h100", nodes=3)
    for ranks in (group(cluster), (16, 0, 8), (23, 22, 9, 8, 7)):
        for root in ranks[:2] if operation in ROOTED else (None,):
            check(*choose(operation, MIB, cluster, library(by), ranks, root), cluster)


def test_mpi_in_two_levels_sends_one_message_a_machine_over_the_network() -> None:
    """reduce of MPICH: inside every machine to its leader, binomially between the leaders."""
    cluster = load_cluster("polaris", nodes=4)
    found = carried("reduce", 1000, cluster, library("mpi"))
    crosses = [
        (op.source, op.destination)
        for op in found.schedule
        if op.source // 4 != op.destination // 4
    ]
    assert sorted(crosses) == [(4, 0), (8, 0), (12, 8)]
    assert all(op.source % 4 for op in found.schedule if op.source // 4 == op.destination // 4)


def test_interfaces_of_sockets() -> None:
    cluster = load_cluster("polaris", nodes=2)
    one = carried("all_reduce", MIB, cluster, library("gloo"))
    assert (one.ports, one.rails, one.exits) == (1, False, ())
    two = library("gloo", env={"GLOO_SOCKET_IFNAME": "hsn0,hsn1"})
    assert carried("all_reduce", MIB, cluster, two).ports == 2
