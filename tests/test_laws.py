"""No impossible answer: laws of a prediction over every preset, operation, size and node count."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

from commsim.collectives.collective import OPERATIONS, Collective, bus_factor
from commsim.cost.bound import bound
from commsim.cost.profile import shipped
from commsim.prediction import COSTS, PROFILES, Prediction, predict
from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster, presets
from commsim.topology.placement import place

SIZES = (1, 8, 1000, 4096, 65536, 1 << 20, 33554432, 1 << 30, 1 << 34)
NODES = (1, 2, 3, 16, 128)


def clusters(name: str) -> list[Cluster]:
    one = load_cluster(name)
    found = []
    for nodes in NODES:
        if nodes > 1 and not one.node.nics and nodes > one.hosts_per_domain:
            continue
        cluster = load_cluster(name, nodes=nodes)
        if cluster.n_ranks >= 2:
            found.append(cluster)
    return found


def ask(cluster: Cluster, operation: str, nbytes: int) -> Prediction:
    return predict(Collective(operation, nbytes=nbytes), cluster)


@pytest.mark.parametrize("name", presets())
def test_every_operation_answers_possibly(name: str) -> None:
    for cluster in clusters(name):
        placement = place(cluster, None)
        for operation in OPERATIONS:
            for nbytes in SIZES:
                p = ask(cluster, operation, nbytes)
                where = (
                    f"{name} x {cluster.nodes}, {operation}, {nbytes} B: {p.algorithm}/{p.protocol}"
                )
                low, high = p.interval
                assert 0 < p.duration < math.inf, where
                assert 0 < low <= p.duration <= high < math.inf, where
                assert p.duration >= bound(p.collective, cluster, placement) * 0.999999, where
                assert sum(p.breakdown.values()) == pytest.approx(p.duration, rel=1e-9), where
                assert p.bottleneck, where
                expected = nbytes / p.duration * bus_factor(operation, p.n_ranks)
                assert p.bus_bandwidth == pytest.approx(expected), where


@pytest.mark.parametrize("name", presets())
def test_more_bytes_are_never_faster_with_the_same_algorithm_and_protocol(name: str) -> None:
    sizes = [int(8 * 2 ** (i / 2)) for i in range(58)]
    for cluster in clusters(name):
        for operation in OPERATIONS:
            if operation == "barrier":
                continue
            choice = None
            last = 0.0
            for nbytes in sizes:
                p = ask(cluster, operation, nbytes)
                if choice is None or (p.algorithm, p.protocol) != choice:
                    choice, last = (p.algorithm, p.protocol), 0.0
                where = f"{name} x {cluster.nodes}, {operation}, {nbytes} B, {choice}"
                assert p.duration >= last * (1 - 1e-9), where
                last = p.duration


@pytest.mark.parametrize(
    "name", ["dgx-h100", "dgx-a100", "mi300x", "alps", "aws-p5", "gb200-nvl72"]
)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_slower_nics_are_never_faster_with_the_same_algorithm(name: str, operation: str) -> None:
    nodes = 36 if name.startswith("gb200") else 4
    fast = load_cluster(name, nodes=nodes)
    nic = fast.node.nics[0]
    slow_node = dataclasses.replace(
        fast.node, nics=tuple(dataclasses.replace(n, rate=n.rate / 2) for n in fast.node.nics)
    )
    slow = dataclasses.replace(fast, node=slow_node)
    assert slow.node.nics[0].rate == nic.rate / 2
    for nbytes in SIZES:
        a, b = ask(fast, operation, nbytes), ask(slow, operation, nbytes)
        profile = shipped(PROFILES[a.library.name])
        same = COSTS[a.library.name](a.collective, slow, a.choice.chosen, b.choice.facts, profile)
        assert same.duration >= a.duration * (1 - 1e-9), f"{nbytes} B, {a.algorithm}/{a.protocol}"


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-a100", "mi300x", "l40sx8"])
def test_renaming_ranks_changes_nothing(name: str) -> None:
    cluster = load_cluster(name)
    ranks = list(range(cluster.n_ranks))
    shuffled = random.Random(1).sample(ranks, len(ranks))
    for operation in ("all_reduce", "all_gather", "all_to_all"):
        for nbytes in SIZES:
            a = predict(Collective(operation, nbytes=nbytes, ranks=tuple(ranks)), cluster)
            b = predict(Collective(operation, nbytes=nbytes, ranks=tuple(shuffled)), cluster)
            c = predict(Collective(operation, nbytes=nbytes), cluster)
            assert a.duration == b.duration == c.duration


def test_equal_inputs_give_equal_outputs_to_the_last_bit() -> None:
    for nbytes in SIZES:
        first = ask(load_cluster("dgx-h100", nodes=4), "all_reduce", nbytes)
        second = ask(load_cluster("dgx-h100", nodes=4), "all_reduce", nbytes)
        assert first.to_dict() == second.to_dict()


def test_the_interval_widens_where_nothing_was_measured() -> None:
    known = ask(load_cluster("dgx-h100", nodes=4), "all_reduce", 1 << 28)
    far = ask(load_cluster("dgx-h100", nodes=1024), "all_reduce", 1 << 28)
    assert far.interval[1] / far.interval[0] > known.interval[1] / known.interval[0]
    assert any("nodes" in note for note in far.notes)
