"""Nccl as a library: choices on presets, settings, what is refused; times worked out by hand."""

from __future__ import annotations

import math

import pytest

from commsim.collectives.collective import OPERATIONS, Collective
from commsim.errors import CollectiveError, LibraryError, UnknownNameError
from commsim.libraries.lookup import library
from commsim.libraries.nccl.facts import NcclFacts
from commsim.libraries.nccl.nccl import Nccl
from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster

MIB, GIB = 1 << 20, 1 << 30


@pytest.fixture(scope="module")
def h100() -> Cluster:
    return load_cluster("dgx-h100")


@pytest.fixture(scope="module")
def h100x2() -> Cluster:
    return load_cluster("dgx-h100", nodes=2)


def picked(
    cluster: Cluster, operation: str, nbytes: int, dtype: str = "float32", op: str = "sum",
    version: str = "2.30.7", **env: str,
) -> tuple[str, str]:  # fmt: skip
    nccl = Nccl(version=version, env={f"NCCL_{k}": v for k, v in env.items()})
    chosen = nccl.choose(Collective(operation, nbytes, dtype, None, None, op), cluster).chosen
    return chosen.algorithm, chosen.protocol


# --- one node of 8 H100: ring 12 x 30 GB/s, NVLS 8 x 40/60 ---


def test_smallest_and_largest_all_reduce(h100: Cluster) -> None:
    # Ring LL: 6.6 + 14 x 0.6 us and 141 x 8/14 GB/s; NVLS: 25 us and 476 x 8/14 GB/s.
    small = Nccl().choose(Collective("all_reduce", 8), h100)
    assert (small.chosen.algorithm, small.chosen.protocol) == ("ring", "LL")
    assert small.chosen.estimate == pytest.approx(15.0e-6 + 8 / 80.5714e9, rel=1e-6)
    assert small.chosen.channels == 1
    large = Nccl().choose(Collective("all_reduce", 4 * GIB), h100)
    assert (large.chosen.algorithm, large.chosen.protocol) == ("nvls", "Simple")
    assert large.chosen.estimate == pytest.approx(25e-6 + 4 * GIB / 272e9, rel=1e-6)
    assert large.chosen.channels == 16


def test_candidates_come_in_nccls_order_with_a_reason_or_an_estimate(h100: Cluster) -> None:
    choice = Nccl().choose(Collective("all_reduce", MIB), h100)
    assert [(c.algorithm, c.protocol) for c in choice.candidates] == [
        ("tree", "LL"), ("tree", "LL128"), ("tree", "Simple"), ("ring", "LL"), ("ring", "LL128"),
        ("ring", "Simple"), ("collnet_direct", "Simple"), ("collnet_chain", "Simple"),
        ("nvls", "Simple"), ("nvls_tree", "Simple"),
    ]  # fmt: skip
    for c in choice.candidates:
        assert c.available == (not c.reason) == math.isfinite(c.estimate)
    assert choice.chosen.estimate == min(c.estimate for c in choice.candidates)
    assert "28.0 us of Ring LL" in choice.reasons[0]
    assert "NVLS" in choice.reasons[0]


def test_facts_tell_group_and_release(h100x2: Cluster) -> None:
    facts = Nccl(version="2.27", launch="threads").choose(Collective("all_reduce"), h100x2).facts
    assert isinstance(facts, NcclFacts)
    assert (facts.placement.n, facts.communicator.nodes) == (16, 2)
    assert (facts.version, facts.launch, facts.env) == ((2, 27, 7), "threads", ())


def test_barrier_is_an_all_reduce_of_one_element(h100: Cluster) -> None:
    barrier = Nccl().choose(Collective("barrier", 1 << 30), h100).chosen
    assert barrier == Nccl().choose(Collective("all_reduce", 4), h100).chosen


def test_types_and_reductions_that_the_switch_lacks(h100: Cluster) -> None:
    assert picked(h100, "all_reduce", GIB) == ("nvls", "Simple")
    assert picked(h100, "all_reduce", GIB, "int8") == ("ring", "Simple")
    assert picked(h100, "all_reduce", GIB, "float32", "avg") == ("ring", "Simple")
    assert picked(h100, "all_reduce", GIB, "float32", "max") == ("ring", "Simple")
    assert picked(h100, "all_reduce", GIB, "bfloat16", "max") == ("nvls", "Simple")


def test_all_gather_counts_whole_parts(h100: Cluster) -> None:
    odd = Nccl().choose(Collective("all_gather", 8 * 1000 + 7), h100).chosen
    assert odd.estimate == Nccl().choose(Collective("all_gather", 8000), h100).chosen.estimate


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
@pytest.mark.parametrize("nbytes", [0, 1, 7, 4096, 1 << 34])
def test_every_operation_and_size_answers(h100x2: Cluster, operation: str, nbytes: int) -> None:
    chosen = Nccl().choose(Collective(operation, nbytes), h100x2).chosen
    assert chosen.available
    assert chosen.channels >= 1


def test_sixteen_thousand_ranks() -> None:
    cluster = load_cluster("dgx-h100", nodes=2048)
    choice = Nccl().choose(Collective("all_reduce", GIB), cluster)
    facts = choice.facts
    assert isinstance(facts, NcclFacts)
    assert facts.communicator.n == 16384
    assert choice.chosen.available


# --- settings ---


def test_a_forced_algorithm(h100: Cluster) -> None:
    assert picked(h100, "all_reduce", GIB, ALGO="Ring") == ("ring", "Simple")
    assert picked(h100, "all_reduce", 8, ALGO="NVLS") == ("nvls", "Simple")
    assert picked(h100, "all_reduce", GIB, PROTO="LL") == ("ring", "LL")
    assert picked(h100, "all_reduce", GIB, NVLS_ENABLE="0") == ("ring", "Simple")
    choice = Nccl(env={"NCCL_ALGO": "Ring"}).choose(Collective("all_reduce", 8), h100)
    assert "NCCL_ALGO=Ring leaves Tree out" in choice.candidates[0].reason


def test_all_to_all_does_not_look_at_nccl_algo(h100: Cluster) -> None:
    assert picked(h100, "all_to_all", GIB, ALGO="NVLS") == ("p2p", "Simple")


def test_nothing_left_is_an_error_from_2_24(h100: Cluster) -> None:
    with pytest.raises(LibraryError, match="NCCL_ALGO=Tree: nothing is left for all_gather") as e:
        picked(h100, "all_gather", MIB, ALGO="Tree")
    assert "\n" not in str(e.value)
    with pytest.raises(LibraryError, match="nothing is left for broadcast"):
        picked(h100, "broadcast", MIB, ALGO="NVLS")
    with pytest.raises(LibraryError, match="nothing is left for all_reduce"):
        picked(h100, "all_reduce", MIB, ALGO="NVLS", PROTO="LL")


def test_ring_stands_in_where_nothing_is_left_up_to_2_23(h100: Cluster) -> None:
    for version in ("2.18.6", "2.19.4", "2.23.4"):
        assert picked(h100, "all_gather", GIB, version=version, ALGO="Tree")[0] == "ring"
    choice = Nccl(version="2.23.4", env={"NCCL_ALGO": "Tree"}).choose(
        Collective("all_gather", GIB), h100
    )
    assert any("runs Ring" in note for note in choice.notes)
    # ... but not against NCCL_PROTO, and 2.18 not for all_reduce
    with pytest.raises(LibraryError, match="nothing is left"):
        picked(h100, "all_reduce", MIB, version="2.23.4", PROTO="Fast")
    with pytest.raises(LibraryError, match="nothing is left"):
        picked(h100, "all_reduce", MIB, version="2.18.6", ALGO="Rings")


def test_sharp_needs_fabric_and_variable(h100x2: Cluster) -> None:
    sharp = load_cluster("dgx-h100", nodes=2, **{"fabric.sharp": True})

    def collnet(cluster: Cluster, **env: str) -> tuple[set[str], str]:
        nccl = Nccl(env={f"NCCL_{k}": v for k, v in env.items()})
        choice = nccl.choose(Collective("all_reduce", GIB), cluster)
        return {c.algorithm for c in choice.candidates if c.available}, " ".join(choice.notes)

    able, notes = collnet(sharp, COLLNET_ENABLE="1")
    assert {"collnet_direct", "collnet_chain", "nvls"} <= able
    assert notes == ""
    able, notes = collnet(sharp)
    assert "collnet_chain" not in able
    assert "only with NCCL_COLLNET_ENABLE=1" in notes
    able, notes = collnet(h100x2, COLLNET_ENABLE="1")
    assert "collnet_chain" not in able
    assert "the fabric has no SHARP" in notes


def test_a_list_that_only_sharp_can_serve_is_taken_as_proof_of_it(h100x2: Cluster) -> None:
    choice = Nccl(env={"NCCL_ALGO": "NVLS"}).choose(Collective("all_gather", GIB), h100x2)
    assert choice.chosen.algorithm == "nvls"
    assert any("fabric.sharp = true in the cluster taken as given" in n for n in choice.notes)
    # NVLSTree needs no SHARP, so nothing is assumed; up to 2.23 Ring stands in instead of failing.
    both = Nccl(env={"NCCL_ALGO": "NVLS,NVLSTree"}).choose(Collective("all_reduce", GIB), h100x2)
    assert (both.chosen.algorithm, both.notes) == ("nvls_tree", ())
    assert picked(h100x2, "all_gather", GIB, version="2.23.4", ALGO="NVLS")[0] == "ring"


# --- the library itself ---


def test_equal_libraries_are_equal_and_hashable() -> None:
    a = Nccl(env={"B": "1", "A": "2"})
    b = Nccl(env=(("A", "2"), ("B", "1")), launch=None)
    assert a == b
    assert hash(a) == hash(b)
    assert a.variables == {"A": "2", "B": "1"}
    assert (a.name, b.launch) == ("nccl", "processes")


@pytest.mark.parametrize(
    ("version", "word", "stand_in"),
    [("2.31.2", "newer", "2.30.7"), ("2.4.8", "older", "2.18.1"), ("2.16.5", "older", "2.18.1")],
)
def test_versions_beyond_the_range_are_noted(
    h100: Cluster, version: str, word: str, stand_in: str
) -> None:
    choice = Nccl(version=version).choose(Collective("all_reduce", MIB), h100)
    assert any(word in note and f"{stand_in} stands in" in note for note in choice.notes)
    assert ("nvls" in {c.algorithm for c in choice.candidates if c.available}) == (word == "newer")


def test_what_is_refused(h100: Cluster) -> None:
    with pytest.raises(LibraryError, match="library version"):
        Nccl(version="latest")
    with pytest.raises(LibraryError, match="launch: expected one of processes, threads, single"):
        Nccl(launch="mpirun")
    with pytest.raises(LibraryError, match="use rccl"):
        Nccl().choose(Collective("all_reduce", MIB), load_cluster("mi300x"))
    with pytest.raises(CollectiveError, match="root: 8 does not exist"):
        Nccl().choose(Collective("broadcast", MIB, root=8), h100)
    with pytest.raises(CollectiveError, match="ranks: 9 does not exist"):
        Nccl().choose(Collective("broadcast", MIB, ranks=(0, 9)), h100)


def test_lookup_by_name() -> None:
    assert library("nccl@2.27.3", env={"NCCL_ALGO": "Ring"}, launch="single") == Nccl(
        version="2.27.3", env={"NCCL_ALGO": "Ring"}, launch="single"
    )
    assert library("NCCL") == Nccl()
    with pytest.raises(UnknownNameError, match="did you mean 'rccl'"):
        library("rcl")
