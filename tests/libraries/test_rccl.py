"""RCCL: channels over the xGMI mesh, the sizes it changes at, what it refuses."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from commsim.collectives.collective import Collective
from commsim.errors import LibraryError
from commsim.libraries.nccl.facts import NcclFacts
from commsim.libraries.nccl.graph import Communicator, PathType
from commsim.libraries.rccl import Rccl, wanted
from commsim.libraries.xgmi import chains, rings
from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture(scope="module")
def mi300x() -> Cluster:
    return load_cluster("mi300x")


def communicator(
    cluster: Cluster, ranks: tuple[int, ...] | None = None, **env: str
) -> Communicator:
    collective = Collective("all_reduce", MIB, ranks=ranks)
    facts = Rccl(env=env).choose(collective, cluster).facts
    assert isinstance(facts, NcclFacts)
    return facts.communicator


def test_eight_meshed_gpus_hold_seven_disjoint_rings(mi300x: Cluster) -> None:
    found = rings(mi300x.node, tuple(range(8)))
    arcs = [(r[i - 1], r[i]) for r in found for i in range(8)]
    assert len(found) == 7
    assert all(sorted(r) == list(range(8)) for r in found)
    assert len(set(arcs)) == 56  # every link both ways, each once


def test_rings_use_no_link_beyond_its_wires() -> None:
    cluster = load_cluster("mi250x")
    width = {(k.source, k.target): k.width for k in cluster.node.links if k.kind == "xgmi"}
    used: dict[tuple[str, str], int] = {}
    for ring in rings(cluster.node, tuple(range(8))):
        for a, b in zip(ring, ring[1:] + ring[:1], strict=True):
            pair = (cluster.node.gpus[a].name, cluster.node.gpus[b].name)
            used[pair] = used.get(pair, 0) + 1
    assert used
    assert all(n <= width.get(p, width.get((p[1], p[0]), 0)) for p, n in used.items())


def test_channels_of_one_machine(mi300x: Cluster) -> None:
    c = communicator(mi300x)
    assert (c.n, c.nodes, c.ring.channels, c.channels) == (8, 1, 7, 56)
    assert c.ring.bw_intra == 48  # what RCCL counts for a 64 GB/s link
    assert c.ring.type_intra == PathType.NVL
    assert communicator(mi300x, NCCL_MAX_NCHANNELS="16").channels == 16


def test_several_machines_use_every_nic_from_the_gpu_beside_it() -> None:
    c = communicator(load_cluster("mi300x", nodes=4))
    assert (c.n, c.nodes, c.ring.channels) == (32, 4, 8)
    assert [order[0] for order in c.ring.orders] == list(range(8))
    assert c.ring.nets == tuple((i, order[-1]) for i, order in enumerate(c.ring.orders))
    assert sorted(out for _, out in c.ring.nets) == list(range(8))
    assert c.domains[0].count == 4
    # Eight chains of seven links fill the 56 of the mesh, none twice.
    used = [pair for order in c.ring.orders for pair in pairwise(order)]
    assert len(used) == len(set(used)) == 56


def test_chains_that_do_not_fit_are_none(mi300x: Cluster) -> None:
    """Two from one GPU over a mesh of single links fit, eight do not: it has seven links."""
    gpus = tuple(range(8))
    assert len(set(chains(mi300x.node, gpus, (0, 0)))) == 2
    assert chains(mi300x.node, gpus, (0,) * 8) == ()


def test_part_of_a_machine(mi300x: Cluster) -> None:
    c = communicator(mi300x, ranks=(1, 5))
    assert (c.n, c.max_local_ranks, c.ring.orders[0]) == (2, 2, (0, 1))


@pytest.mark.parametrize(
    ("operation", "nbytes", "nodes", "part", "choice"),
    [
        ("all_reduce", 256 * KIB, 1, "MI300X", ("ring", "LL")),
        ("all_reduce", 256 * KIB + 1, 1, "MI300X", ("ring", "LL128")),
        ("all_reduce", 8 * MIB, 1, "MI300X", ("ring", "Simple")),
        ("all_reduce", 256 * KIB, 2, "MI300X", ("tree", "LL")),
        ("all_reduce", 4 * MIB, 2, "MI300X", ("tree", "LL128")),
        ("all_reduce", 32 * MIB, 2, "MI300X", ("tree", "LL128")),
        ("all_reduce", 64 * MIB, 2, "MI300X", ("ring", "Simple")),
        ("all_reduce", 4 * MIB, 4, "MI250X", ("tree", "Simple")),
        ("all_reduce", 4 * MIB, 1, "MI250X", ("ring", "LL128")),
        ("all_reduce", 8 * MIB, 4, "MI250X", ("ring", "Simple")),
        ("all_reduce", 1 << 30, 1024, "MI250X", ("tree", "Simple")),  # 8192 ranks: 128 KiB each
        ("all_reduce", 2 << 30, 1024, "MI250X", ("ring", "Simple")),  # 8 MiB x 1024 / 4
        ("all_gather", 4 * MIB, 2, "MI300X", ("ring", "LL128")),
        ("all_gather", 4 * MIB, 64, "MI300X", ("ring", "LL")),  # 256 KiB x 64 / 4
        ("all_gather", 64 * MIB, 64, "MI300X", ("ring", "LL128")),  # below 8 MiB x 64 / 4
        ("reduce_scatter", 128 * MIB, 64, "MI300X", ("ring", "Simple")),
    ],
)
def test_sizes(operation: str, nbytes: int, nodes: int, part: str, choice: tuple[str, str]) -> None:
    assert wanted(operation, nbytes, nodes, part) == choice


def test_a_choice_has_no_estimate_and_says_that_it_is_a_guess(mi300x: Cluster) -> None:
    choice = Rccl().choose(Collective("all_reduce", MIB), mi300x)
    assert choice.chosen.algorithm == "ring"
    assert math.isnan(choice.chosen.estimate)
    assert any("guess" in note for note in choice.notes)
    assert {c.algorithm for c in choice.candidates} == {"tree", "ring"}


def test_forced_algorithm_and_protocol(mi300x: Cluster) -> None:
    env = {"NCCL_ALGO": "Tree", "NCCL_PROTO": "Simple"}
    chosen = Rccl(env=env).choose(Collective("all_reduce", 64), mi300x).chosen
    assert (chosen.algorithm, chosen.protocol) == ("tree", "Simple")


def test_nothing_left() -> None:
    cluster = load_cluster("mi300x")
    nvls = {"NCCL_ALGO": "NVLS"}
    with pytest.raises(LibraryError, match="nothing is left for all_reduce"):
        Rccl(env=nvls).choose(Collective("all_reduce", MIB), cluster)
    old = Rccl(version="2.20.5", env=nvls).choose(Collective("all_reduce", MIB), cluster)
    assert old.chosen.algorithm == "ring"


def test_all_to_all_is_point_to_point(mi300x: Cluster) -> None:
    chosen = Rccl().choose(Collective("all_to_all", 64 * MIB), mi300x).chosen
    assert (chosen.algorithm, chosen.protocol) == ("p2p", "Simple")


def test_wrong_vendor_and_version() -> None:
    with pytest.raises(LibraryError, match="use nccl"):
        Rccl().choose(Collective("all_reduce", MIB), load_cluster("dgx-h100"))
    newer = Rccl(version="2.29.2").choose(Collective("all_reduce", MIB), load_cluster("mi300x"))
    assert any("2.27.7 stands in" in note for note in newer.notes)
    with pytest.raises(LibraryError, match="library version"):
        Rccl(version="six")


@pytest.mark.parametrize("preset", ["mi300x", "mi250x", "mi355x", "mi300a-quad", "frontier"])
@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_every_operation_answers(preset: str, nodes: int) -> None:
    cluster = load_cluster(preset, nodes=nodes)
    for operation in (
        "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "barrier",
        "all_to_all", "gather", "scatter", "send_recv",
    ):  # fmt: skip
        chosen = Rccl().choose(Collective(operation, MIB), cluster).chosen
        assert chosen.available
        assert chosen.channels >= 1
