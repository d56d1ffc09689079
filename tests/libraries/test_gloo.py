"""Gloo's choice: one algorithm per operation, and the traffic counted on real runs."""

from __future__ import annotations

import pytest

from commsim.collectives.collective import OPERATIONS, Collective
from commsim.cost.host_traffic import Layout, traffic
from commsim.errors import LibraryError
from commsim.libraries.carry_out import carry_out
from commsim.libraries.gloo import Gloo
from commsim.libraries.host import HostFacts
from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster


@pytest.fixture(scope="module")
def four() -> Cluster:
    return load_cluster("dgx-h100", nodes=4)


@pytest.mark.parametrize(
    ("operation", "algorithm"),
    [
        ("all_reduce", "ring"), ("reduce_scatter", "ring_then_slice"), ("all_gather", "ring"),
        ("reduce", "ring_then_gather"), ("broadcast", "flooded_binomial"), ("all_to_all", "linear"),
        ("gather", "linear"), ("scatter", "linear"), ("barrier", "dissemination"),
        ("send_recv", "p2p"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("nbytes", [8, 1 << 16, 1 << 30])
def test_size_changes_no_algorithm(
    four: Cluster, operation: str, algorithm: str, nbytes: int
) -> None:
    choice = Gloo().choose(Collective(operation, nbytes), four)
    assert (choice.chosen.algorithm, choice.chosen.protocol) == (algorithm, "TCP")
    assert choice.chosen in choice.candidates


def test_every_operation_is_answered(four: Cluster) -> None:
    for operation in OPERATIONS:
        assert Gloo().choose(Collective(operation, 1000), four).reasons


def test_what_torch_does_not_use_is_ruled_out_with_a_reason(four: Cluster) -> None:
    out = [c for c in Gloo().choose(Collective("all_reduce", 8), four).candidates if c.reason]
    assert [c.algorithm for c in out] == ["bcube", "halving_doubling"]
    assert not any(c.available for c in out)


# Bytes that every rank (broadcast: the root) sends, over the size: counted on the interfaces of
# torch 2.13's Gloo with 4 ranks.
@pytest.mark.parametrize(
    ("operation", "sent"),
    [
        ("all_reduce", 1.5), ("reduce_scatter", 1.5), ("all_gather", 0.75), ("all_to_all", 0.75),
    ],
)  # fmt: skip
def test_bytes_are_those_counted_on_real_runs(four: Cluster, operation: str, sent: float) -> None:
    algorithm = Gloo().choose(Collective(operation, 1 << 20), four).chosen.algorithm
    at = Layout(n=4, hosts=4, per_host=1, near=1, crossings=1, segment=1 << 20)
    moved = traffic(algorithm, operation, 1 << 20, at)
    assert moved.handled / 2 == pytest.approx(sent * (1 << 20))
    assert moved.node == pytest.approx(sent * (1 << 20))


# Sizes that each rank sends in a broadcast from rank 0, counted by its sockets in the lab.
@pytest.mark.parametrize(
    ("n", "counted"),
    [
        (3, [2, 0, 0]), (4, [2, 1, 0, 0]), (5, [3, 1, 0, 0, 0]), (6, [3, 2, 0, 0, 0, 0]),
    ],
)  # fmt: skip
def test_the_broadcast_tree_is_the_one_counted(n: int, counted: list[int]) -> None:
    cluster = load_cluster("dgx-h100", nodes=2)
    asked = Collective("broadcast", 1 << 20, ranks=tuple(range(n)), root=0)
    carried = carry_out(asked, Gloo().choose(asked, cluster), cluster, fold=False)
    assert (carried.schedule.sent() / (1 << 20)).tolist() == counted


def test_the_ring_sends_at_least_two_segments_of_at_most_a_mebibyte() -> None:
    at = Layout(n=4, hosts=4, per_host=1, near=1, crossings=1, segment=1 << 20)
    # 6 steps; chunks of 1 KiB: 2 segments each; of 4 MiB: 4 segments; sends and receives both count
    assert traffic("ring", "all_reduce", 4 << 10, at).messages == 2 * 6 * 2
    assert traffic("ring", "all_reduce", 16 << 20, at).messages == 2 * 6 * 4


def test_interfaces_come_from_the_environment(four: Cluster) -> None:
    for env, ports in (({}, 1), ({"GLOO_SOCKET_IFNAME": "eth0,eth1"}, 2)):
        facts = Gloo(env=env).choose(Collective("all_reduce", 8), four).facts
        assert isinstance(facts, HostFacts)
        assert facts.interfaces == ports


def test_is_a_value() -> None:
    assert hash(Gloo(env={"A": "1", "B": "2"})) == hash(Gloo(env={"B": "2", "A": "1"}))
    assert Gloo() == Gloo()
    with pytest.raises(LibraryError, match="launch"):
        Gloo(launch="threads")
