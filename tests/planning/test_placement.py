"""Mappings of ranks against every permutation, the shared NICs by hand, and what is pasted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest

import commsim
from commsim.errors import PlanError, UnknownNameError
from commsim.planning import placement
from commsim.planning.placement import (
    Mapping,
    Traffic,
    cost,
    mappings,
    order_mappings,
    traffic_of,
)
from commsim.planning.rank_files import OWN, SWAPPED, devices, megatron, written
from commsim.units import Seconds
from commsim.workload.layout import Layout
from commsim.workload.layouts.groups import groups

OPERATIONS = ("all_reduce", "all_gather", "all_to_all", "send_recv")
SMALL = {
    "three of four NICs each": ("dgx-h100", 2, {"node.gpus": 3, "node.nics.count": 3}),
    "one NIC each": ("dgx-h100", 3, {"node.gpus": 2, "node.nics.count": 1}),
    "pairs with a bridge": ("a100-pcie-bridges-x8", 1, {"node.gpus": 6}),
}
"""Clusters of six ranks."""


def small(name: str) -> commsim.Cluster:
    preset, nodes, changes = SMALL[name]
    return commsim.load_cluster(preset, nodes=nodes, **changes)


def cheapest(traffic: Sequence[Traffic], cluster: commsim.Cluster) -> Seconds:
    """The least over all permutations of all ranks, each group asked of `predict` by itself."""
    known: dict[tuple[str, int, tuple[int, ...]], float] = {}

    def alone(one: Traffic, group: tuple[int, ...]) -> float:
        key = one.operation, one.nbytes, group
        if key not in known:
            asked = commsim.Collective(one.operation, nbytes=one.nbytes, ranks=group)
            known[key] = commsim.predict(asked, cluster).duration
        return known[key]

    def total(ranks: Sequence[int]) -> float:
        found = 0.0
        for one in traffic:
            placed = [tuple(ranks[r] for r in group) for group in one.groups]
            found += one.count * max(
                *(alone(one, group) for group in placed), nic_time(one, placed, cluster)
            )
        return found

    return min(map(total, permutations(range(cluster.n_ranks))))


def nic_time(one: Traffic, placed: Sequence[tuple[int, ...]], cluster: commsim.Cluster) -> Seconds:
    """s in which 92 % of a machine's NICs carry what its ranks send to other machines: of a ring
    2 (n - 1) / n or (n - 1) / n buffers a group, of all_to_all every rank's share for those away,
    of send_recv a message for every neighbour away."""
    each = cluster.gpus_per_node
    if not cluster.node.nics:
        return 0.0
    sent = dict.fromkeys(range(cluster.nodes), 0.0)
    for group in placed:
        n = len(group)
        for host in {rank // each for rank in group}:
            here = [rank for rank in group if rank // each == host]
            if len(here) == n:
                continue
            if one.operation == "send_recv":
                after = dict(zip(group, (*group[1:], group[0]), strict=True))
                sent[host] += one.nbytes * sum(after[rank] // each != host for rank in here)
            elif one.operation == "all_to_all":
                sent[host] += one.nbytes * len(here) * (n - len(here)) / n
            else:
                sent[host] += one.nbytes * (2 if one.operation == "all_reduce" else 1) * (n - 1) / n
    return max(sent.values()) / (0.92 * sum(nic.rate for nic in cluster.node.nics))


def pairs_and_trios(first: str, second: str) -> list[Traffic]:
    """Groups that no numbering has close together by itself, of which both cannot be so."""
    return [
        Traffic(
            kind="trios", groups=((0, 2, 5), (1, 3, 4)), operation=first, nbytes=1 << 26, count=4
        ),
        Traffic(
            kind="pairs", groups=((0, 4), (1, 5), (2, 3)), operation=second, nbytes=1 << 24,
            count=20,
        ),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "operation"),
    [(name, each) for i, name in enumerate(SMALL) for each in OPERATIONS[i % 2 :: 2]],
)
def test_no_permutation_is_cheaper(name: str, operation: str) -> None:
    cluster, traffic = small(name), pairs_and_trios(operation, "all_reduce")
    assert mappings(traffic, cluster)[0].duration == pytest.approx(cheapest(traffic, cluster))


@pytest.mark.parametrize("name", SMALL)
def test_nor_where_ranks_are_moved_only(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What larger clusters have in place of trying all: it finds as much here."""
    monkeypatch.setattr(placement, "MOST_TRIED", 0)
    cluster, traffic = small(name), pairs_and_trios("all_gather", "all_reduce")
    assert mappings(traffic, cluster)[0].duration == pytest.approx(cheapest(traffic, cluster))


def test_a_layout_is_mapped_as_well_as_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "MOST_TRIED", 0)
    cluster = small("three of four NICs each")
    layout = Layout(tp=3, dp=2, order="dp-tp-cp-ep-pp")  # the wrong way round
    traffic = [
        Traffic(
            kind="tp", groups=groups(layout).all("tp"), operation="all_reduce", nbytes=1 << 26,
            count=64,
        ),
        Traffic(
            kind="dp", groups=groups(layout).all("dp"), operation="all_reduce", nbytes=1 << 28
        ),
    ]  # fmt: skip
    best = mappings(traffic, cluster)[0]
    assert best.duration == pytest.approx(cheapest(traffic, cluster))
    assert best.duration < cost(traffic, range(6), cluster)
    assert all(len({best.ranks[r] // 3 for r in group}) == 1 for group in traffic[0].groups)


def test_groups_of_a_machine_share_its_nic() -> None:
    """Eight pairs, one rank on each machine, over one NIC each: eight buffers have to leave."""
    cluster = commsim.load_cluster(
        "dgx-h100", nodes=2, **{"node.nics.count": 1, "node.nics.rate": "100Gbit/s"}
    )
    across = Traffic(
        kind="dp", groups=tuple((i, i + 8) for i in range(8)), operation="all_reduce",
        nbytes=1 << 28,
    )  # fmt: skip
    alone = commsim.predict(
        commsim.Collective("all_reduce", nbytes=1 << 28, ranks=(0, 8)), cluster
    ).duration
    # 8 groups x 2 (n - 1) / n x 2^28 bytes over 92 % of 12.5 GB/s
    shared = 8 * 2**28 / (0.92 * 12.5e9)
    assert cost([across], range(16), cluster) == pytest.approx(shared)
    assert shared > 3 * alone


def test_each_kind_has_its_part() -> None:
    cluster, traffic = small("one NIC each"), pairs_and_trios("all_gather", "all_reduce")
    for mapping in mappings(traffic, cluster):
        assert mapping.duration == pytest.approx(sum(mapping.parts.values()))
        for one in traffic:
            assert mapping.parts[one.kind] == pytest.approx(cost([one], mapping.ranks, cluster))
        assert [mapping.ranks[i] for i in mapping.logical] == list(range(6))


def test_orders_of_dimensions_are_mappings() -> None:
    layout = Layout(tp=2, dp=3, pp=2)
    found = order_mappings(layout)
    assert len(found) == 6
    assert found["tp-dp-pp-cp-ep"] == tuple(range(12))
    # In tp-pp-dp the groups of the logical ranks lie where a layout of that order has them.
    placed = found["tp-pp-dp-cp-ep"]
    other = groups(Layout(tp=2, dp=3, pp=2, order="tp-pp-dp-cp-ep"))
    for kind in ("tp", "dp", "pp"):
        mine = {tuple(placed[r] for r in group) for group in groups(layout).all(kind)}
        assert mine == set(other.all(kind))


def test_what_a_step_sends(model: commsim.Model, cluster: commsim.Cluster) -> None:
    layout = Layout(tp=4, dp=2, pp=2, global_batch=16, seq_len=2048)
    step = commsim.predict_step(model, cluster, layout)
    found = traffic_of(step)
    assert {one.kind for one in found} == {"tp", "dp", "pp"}
    for one, sent in zip(found, step.messages, strict=True):
        assert (one.operation, one.nbytes, one.count) == (
            sent.message.operation, sent.message.nbytes, sent.count,
        )  # fmt: skip
        assert sorted(rank for group in one.groups for rank in group) == list(range(16))
        assert len(one.groups[0]) == {"tp": 4, "dp": 2, "pp": 2}[one.kind]


# ---- what is pasted ----


def mapped(*ranks: int) -> Mapping:
    return Mapping(name="by hand", ranks=ranks, duration=1.0)


def test_a_hostfile_names_each_ranks_machine() -> None:
    cluster = commsim.load_cluster("dgx-h100", nodes=2, **{"node.gpus": 2, "node.nics.count": 2})
    mapping = mapped(0, 2, 1, 3)
    assert written("hostfile", mapping, cluster) == "node0\nnode1\nnode0\nnode1\n"
    assert written("hostfile", mapping, cluster, hosts=["a", "b"]) == "a\nb\na\nb\n"
    with pytest.raises(PlanError, match="expected 2 names, one a machine, got 3"):
        written("hostfile", mapping, cluster, hosts=["a", "b", "c"])
    # Ranks 0 and 2 take the GPUs 0 and 1 of node0 in order: nothing to set. The other way round:
    assert devices(mapping, cluster) is None
    assert devices(mapped(1, 2, 0, 3), cluster) == (1, 0, 0, 1)


def test_a_mesh_has_the_groups_of_the_layout() -> None:
    torch = pytest.importorskip("torch")
    cluster, layout = commsim.load_cluster("dgx-h100"), Layout(tp=2, dp=2, pp=2)
    mapping = mapped(0, 4, 1, 5, 2, 6, 3, 7)
    text = written("torch", mapping, cluster, layout)
    seen: dict[str, object] = {"torch": torch}
    code = "\n".join(line for line in text.splitlines() if "import" not in line)
    made: list[tuple[object, ...]] = []
    seen["DeviceMesh"] = lambda *given, mesh_dim_names: made.append((*given, mesh_dim_names))
    exec(code, seen)
    ((_, mesh, names),) = made
    assert names == ("pp", "dp", "tp")
    for axis, kind in enumerate(("pp", "dp", "tp")):
        rows = {tuple(row) for row in mesh.movedim(axis, -1).reshape(-1, 2).tolist()}  # type: ignore[attr-defined]
        assert rows == {tuple(mapping.ranks[r] for r in g) for g in groups(layout).all(kind)}


def test_groups_of_ones_own_become_new_group() -> None:
    cluster = commsim.load_cluster("dgx-h100")
    own = Traffic(kind="mine", groups=((0, 1), (2, 3)), operation="all_reduce", nbytes=8)
    text = written("torch", mapped(7, 6, 5, 4, 3, 2, 1, 0), cluster, None, [own])
    assert "mine = [dist.new_group(ranks) for ranks in [[7, 6], [5, 4]]]" in text
    assert written("ranks", mapped(1, 0), cluster) == "1, 0\n"
    with pytest.raises(UnknownNameError, match="did you mean 'hostfile'"):
        written("hostfiles", mapped(0, 1), cluster)


def test_megatrons_two_orders() -> None:
    layout = Layout(tp=2, dp=2, pp=2)
    assert megatron("tp-dp-pp-cp-ep", layout) == OWN
    assert megatron("tp-pp-dp-cp-ep", layout) == SWAPPED == "--use-tp-pp-dp-mapping"
    assert megatron("dp-tp-pp-cp-ep", layout) == ""
    assert megatron("tp-cp-pp-dp-ep", Layout(tp=2, cp=2, dp=2, pp=2)) == ""  # goes without cp
