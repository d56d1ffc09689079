"""No impossible answer: laws of a prediction over every preset, operation, size and node count."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise

import pytest

from commsim.collectives.collective import OPERATIONS, Collective, bus_factor
from commsim.cost.profile import shipped
from commsim.libraries.library import Library
from commsim.libraries.lookup import library
from commsim.prediction import COSTS, PROFILES, Prediction, predict
from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster, presets
from commsim.topology.node import NodeTopology
from commsim.topology.wiring import fabric_kinds

SIZES = (1, 8, 1000, 65536, 1 << 20, 33554432, 1 << 30, 1 << 34)
NODES = (1, 2, 3, 16, 128)
HOST = ("gloo", "mpi")


@lru_cache(maxsize=128)
def clusters(name: str) -> tuple[Cluster, ...]:
    """The preset with every number of machines that it can have."""
    one = load_cluster(name)
    most = max(NODES) if one.node.nics else one.hosts_per_domain
    found = [load_cluster(name, nodes=nodes) for nodes in NODES if nodes <= most]
    return tuple(c for c in found if c.n_ranks >= 2)


def ask(
    cluster: Cluster,
    operation: str,
    nbytes: int,
    *,
    ranks: tuple[int, ...] | None = None,
    by: Library | None = None,
) -> Prediction:
    return predict(Collective(operation, nbytes=nbytes, ranks=ranks), cluster, by)


def where(p: Prediction) -> str:
    c = p.collective
    ranks = "" if c.ranks is None else f" of {p.n_ranks} ranks"
    return (
        f"{p.cluster.name} x {p.cluster.nodes}, {p.library.name}, {c.operation}{ranks}, "
        f"{c.nbytes} B: {p.algorithm}/{p.protocol}, {p.duration:.6g} s"
    )


# ---- what no network can beat ----


def crossing(operation: str, nbytes: int, n: int, inside: int) -> float:
    """Bytes that must leave a set of `inside` of n ranks, whoever computes what where.

    A rank outside needs what those inside hold: their sum (all_reduce: S), their parts (all_gather:
    S inside/n), the sums of its own part (reduce_scatter: S outside/n), one message of S/n from
    each to each (all_to_all). Rooted: rank 0 lies inside, so it sends to (broadcast S, scatter S
    outside/n) those outside, and what they send to it crosses the other way, over a cut that
    carries the same. send_recv: a ring leaves every set at least once.
    """
    outside = n - inside
    return nbytes * {
        "all_gather": inside / n,
        "reduce_scatter": outside / n,
        "all_to_all": inside * outside / n,
        "gather": outside / n,
        "scatter": outside / n,
        "barrier": 0.0,
    }.get(operation, 1.0)


@lru_cache(maxsize=4096)
def cuts(cluster: Cluster, ranks: tuple[int, ...] | None) -> tuple[tuple[int, float], ...]:
    """How many ranks lie inside one GPU, one machine, half of the machines; bytes/s out of each."""
    group = ranks or tuple(range(cluster.n_ranks))
    machines = [rank // cluster.gpus_per_node for rank in group]
    middle = sorted(set(machines))[len(set(machines)) // 2]
    sizes = {1, machines.count(machines[0]), sum(m < middle for m in machines)} - {0, len(group)}
    return tuple(
        (inside, cluster.cut_bandwidth(group[:inside], group[inside:])) for inside in sorted(sizes)
    )


def check_possible(p: Prediction) -> None:
    low, high = p.interval
    assert 0 < p.duration < math.inf, where(p)
    assert 0 < low <= p.duration <= high < math.inf, where(p)
    assert sum(p.breakdown.values()) == pytest.approx(p.duration, rel=1e-9), where(p)
    assert all(part >= 0 for part in p.breakdown.values()), (where(p), p.breakdown)
    assert p.bottleneck, where(p)
    c = p.collective
    expected = c.nbytes / p.duration * bus_factor(c.operation, p.n_ranks)
    assert p.bus_bandwidth == pytest.approx(expected), where(p)


def check_cuts(p: Prediction) -> None:
    c = p.collective
    for inside, rate in cuts(p.cluster, c.ranks):
        least = crossing(c.operation, c.nbytes, p.n_ranks, inside) / rate
        assert p.duration >= least * (1 - 1e-9), f"{where(p)}; {inside} ranks need {least:.6g} s"


@pytest.mark.parametrize("name", presets())
def test_every_operation_answers_possibly(name: str) -> None:
    for cluster in clusters(name):
        for operation in OPERATIONS:
            for nbytes in SIZES:
                p = ask(cluster, operation, nbytes)
                check_possible(p)
                check_cuts(p)


@pytest.mark.parametrize("name", presets())
def test_every_part_of_a_cluster_answers_possibly(name: str) -> None:
    for cluster in clusters(name)[:2]:
        n, each = cluster.n_ranks, cluster.gpus_per_node
        groups = {(0, n - 1), tuple(range(0, n, each)), tuple(range(n // 2 + 1))}
        for ranks in sorted(group for group in groups if len(group) >= 2):
            for operation in OPERATIONS:
                for nbytes in (8, 1 << 20, 1 << 30):
                    p = ask(cluster, operation, nbytes, ranks=ranks)
                    check_possible(p)
                    check_cuts(p)


@pytest.mark.parametrize("by", HOST)
@pytest.mark.parametrize("name", presets())
def test_every_operation_through_the_host(name: str, by: str) -> None:
    host = library(by)
    for cluster in clusters(name)[:4]:
        for operation in OPERATIONS:
            for nbytes in (8, 1 << 20, 1 << 30):
                p = ask(cluster, operation, nbytes, by=host)
                check_possible(p)
                check_cuts(p)


@pytest.mark.parametrize("oversubscription", [1.0, 4.0])
@pytest.mark.parametrize("kind", [k for k in fabric_kinds() if k != "cabled"])
def test_every_operation_over_every_fabric(kind: str, oversubscription: float) -> None:
    changes = {"fabric.kind": kind, "fabric.oversubscription": oversubscription}
    for name in ("dgx-h100", "mi300x", "l40sx8"):
        for nodes in (2, 3, 8, 64):
            cluster = load_cluster(name, nodes=nodes, **changes)
            for by in (None, *map(library, HOST)):
                for operation in OPERATIONS:
                    for nbytes in (8, 1 << 20, 1 << 34):
                        p = ask(cluster, operation, nbytes, by=by)
                        check_possible(p)
                        check_cuts(p)


# ---- more is never faster ----


@pytest.mark.parametrize("name", presets())
def test_more_bytes_are_never_faster_with_the_same_algorithm_and_protocol(name: str) -> None:
    for cluster in clusters(name)[::2]:
        for operation in OPERATIONS:
            last: dict[tuple[str, str, bool], float] = {}
            for step in range(16):
                p = ask(cluster, operation, 8 * 4**step)
                # a transport has protocols too, and says so: Slingshot's for 192 bytes is slow
                inside = any("inside the adapter's commands" in note for note in p.notes)
                choice = (p.algorithm, p.protocol, inside)
                assert p.duration >= last.get(choice, 0.0) * (1 - 1e-9), where(p)
                last[choice] = p.duration


@pytest.mark.parametrize("by", ["nccl", "gloo", "mpi"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_more_bytes_are_never_faster_close_up(operation: str, by: str) -> None:
    for nodes in (1, 4):
        cluster = load_cluster("dgx-h100", nodes=nodes)
        last: dict[tuple[str, str], float] = {}
        for step in range(4 * 29):
            p = ask(cluster, operation, round(8 * 2 ** (step / 4)), by=library(by))
            choice = (p.algorithm, p.protocol)
            assert p.duration >= last.get(choice, 0.0) * (1 - 1e-9), where(p)
            last[choice] = p.duration


SLOWER: dict[str, Callable[[NodeTopology], NodeTopology]] = {
    "NIC rate": lambda node: dataclasses.replace(
        node, nics=tuple(dataclasses.replace(n, rate=n.rate / 2) for n in node.nics)
    ),
    "NIC latency": lambda node: dataclasses.replace(
        node, nics=tuple(dataclasses.replace(n, latency=n.latency + 1e-5) for n in node.nics)
    ),
    **{
        f"{kind} bandwidth": lambda node, kind=kind: dataclasses.replace(  # type: ignore[misc]
            node,
            links=tuple(
                dataclasses.replace(k, bandwidth=k.bandwidth / 2) if k.kind == kind else k
                for k in node.links
            ),
        )
        for kind in ("nvlink", "xgmi", "pcie")
    },
}


@pytest.mark.parametrize("what", SLOWER)
@pytest.mark.parametrize(
    "name",
    ["dgx-h100", "dgx-a100", "mi300x", "alps", "aws-p5", "l40sx8", "gb200-nvl72", "dgx-1v"],
)
def test_slower_hardware_is_never_faster_with_the_same_algorithm(name: str, what: str) -> None:
    fast = load_cluster(name, nodes=36 if name.startswith("gb200") else 4)
    slow = dataclasses.replace(fast, node=SLOWER[what](fast.node))
    for operation in OPERATIONS:
        for nbytes in SIZES:
            a, b = ask(fast, operation, nbytes), ask(slow, operation, nbytes)
            profile = shipped(PROFILES[a.library.name])
            same = COSTS[a.library.name](
                a.collective, slow, a.choice.chosen, b.choice.facts, profile
            )
            assert same.duration >= a.duration * (1 - 1e-9), (where(a), same.duration)


@pytest.mark.parametrize("by", HOST)
def test_a_slower_network_is_never_faster_for_host_libraries(by: str) -> None:
    for operation in OPERATIONS:
        for nbytes in SIZES:
            times = [
                ask(
                    load_cluster("dgx-h100", nodes=4, **{"node.nics.rate": f"{rate}Gbit/s"}),
                    operation,
                    nbytes,
                    by=library(by),
                ).duration
                for rate in (400, 100, 25, 10, 1)
            ]
            assert all(b >= a * (1 - 1e-9) for a, b in pairwise(times)), (operation, nbytes, times)


# ---- equal questions have equal answers ----


def renamings(cluster: Cluster) -> Iterator[tuple[int, ...]]:
    """The cluster's ranks with the machines, and the GPUs of each machine, in another order."""
    each = cluster.gpus_per_node
    chance = random.Random(1)
    for _ in range(2):
        machines = chance.sample(range(cluster.nodes), cluster.nodes)
        yield tuple(
            machine * each + local
            for machine in machines
            for local in chance.sample(range(each), each)
        )


@pytest.mark.parametrize("nodes", [1, 4])
@pytest.mark.parametrize("name", ["dgx-h100", "dgx-a100", "mi300x", "l40sx8", "alps"])
def test_renaming_ranks_changes_nothing(name: str, nodes: int) -> None:
    cluster = load_cluster(name, nodes=nodes)
    for by in (None, *map(library, HOST)):
        for operation in ("all_reduce", "all_gather", "all_to_all"):
            for nbytes in SIZES:
                plain = ask(cluster, operation, nbytes, by=by)
                for ranks in renamings(cluster):
                    assert ask(cluster, operation, nbytes, ranks=ranks, by=by).duration == (
                        plain.duration
                    ), where(plain)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_equal_machines_of_a_cluster_are_equal(operation: str) -> None:
    cluster = load_cluster("dgx-h100", nodes=8)
    for nbytes in SIZES:
        one = ask(load_cluster("dgx-h100"), operation, nbytes)
        last = ask(cluster, operation, nbytes, ranks=tuple(range(56, 64)))
        assert one.duration == last.duration
        first, far = (
            ask(cluster, operation, nbytes, ranks=ranks)
            for ranks in (tuple(range(16)), tuple(range(40, 56)))
        )
        assert first.duration == far.duration


def test_equal_inputs_give_equal_outputs_to_the_last_bit() -> None:
    for nbytes in SIZES:
        first = ask(load_cluster("dgx-h100", nodes=4), "all_reduce", nbytes)
        second = ask(load_cluster("dgx-h100", nodes=4), "all_reduce", nbytes)
        assert first.to_dict() == second.to_dict()


PROGRAM = """
import json
from commsim.collectives.collective import OPERATIONS, Collective
from commsim.prediction import predict
from commsim.topology.load import load_cluster
print(json.dumps([
    predict(Collective(operation, nbytes=nbytes), load_cluster(name, nodes=2)).to_dict()
    for name in ("dgx-h100", "l40sx8", "mi300x", "alps")
    for operation in OPERATIONS
    for nbytes in (1000, 1 << 24)
]))
"""


def test_two_processes_give_equal_outputs_to_the_last_bit() -> None:
    found = []
    for seed in ("1", "2"):  # of hashes, and so of the order of sets
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        found.append(ran.stdout)
    assert len(json.loads(found[0])) == 4 * len(OPERATIONS) * 2
    assert found[0] == found[1]


# ---- outside of what was measured ----


def test_the_interval_widens_where_nothing_was_measured() -> None:
    known = ask(load_cluster("dgx-h100", nodes=4), "all_reduce", 1 << 28)
    far = ask(load_cluster("dgx-h100", nodes=1024), "all_reduce", 1 << 28)
    assert far.interval[1] / far.interval[0] > known.interval[1] / known.interval[0]
    assert any("nodes" in note for note in far.notes)
