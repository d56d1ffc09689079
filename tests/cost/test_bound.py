"""The physical bound, worked out by hand from data-sheet rates."""

from __future__ import annotations

import pytest

from commsim.collectives.collective import OPERATIONS, Collective
from commsim.cost.bound import bound, crossing, fabric_cuts
from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster
from commsim.topology.placement import place

S = 1 << 30
GB = 1e9


def least(cluster: Cluster, operation: str, ranks: tuple[int, ...] | None = None) -> float:
    return bound(Collective(operation, nbytes=S, ranks=ranks), cluster, place(cluster, ranks))


def test_one_dgx_h100() -> None:
    # Every GPU sends 7/8 of S (broadcast: S) through its 450 GB/s of NVLink.
    box = load_cluster("dgx-h100")
    shared = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
    for operation in shared:
        assert least(box, operation) == pytest.approx(S * 7 / 8 / (450 * GB))
    for operation in ("broadcast", "reduce", "send_recv"):
        assert least(box, operation) == pytest.approx(S / (450 * GB))
    assert least(box, "barrier") == 0.0
    # Two of its GPUs: half of S.
    assert least(box, "all_gather", (0, 5)) == pytest.approx(S / 2 / (450 * GB))


@pytest.mark.parametrize(
    ("operation", "over"),
    [
        ("all_reduce", 2 * 3 / 4),  # 4 machines of 8: 2 S (D-1)/D
        ("all_gather", 3 / 4),
        ("reduce_scatter", 3 / 4),
        ("all_to_all", 8 * 24 / 32),  # 8 ranks with 24 of their 32 messages for others
        ("gather", 24 / 32),
        ("scatter", 24 / 32),
        ("broadcast", 1.0),
        ("reduce", 1.0),
        ("send_recv", 1.0),
    ],
)
def test_four_dgx_a100(operation: str, over: float) -> None:
    # 8 x 200 Gbit/s out of a machine; inside, at most S through a GPU's 300 GB/s.
    box = load_cluster("dgx-a100", nodes=4)
    inside = S * (1.0 if over == 1.0 else 31 / 32) / (300 * GB)
    assert least(box, operation) == pytest.approx(max(S * over / (8 * 25 * GB), inside))


def test_switches_that_reduce_halve_the_network_s_part() -> None:
    plain = load_cluster("dgx-a100", nodes=4)
    sharp = load_cluster("dgx-a100", nodes=4, **{"fabric.sharp": True})
    assert least(plain, "all_reduce") == pytest.approx(S * 1.5 / (200 * GB))
    assert least(sharp, "all_reduce") == pytest.approx(S / (200 * GB))
    assert least(plain, "all_gather") == least(sharp, "all_gather")


def test_a_machine_without_nvlink_is_bound_by_pcie() -> None:
    # L40S: PCIe gen4 x16, 31.5 GB/s by the sheet (16 GT/s x 16 lanes x 128/130 / 8).
    box = load_cluster("l40sx8")
    assert least(box, "all_gather") == pytest.approx(S * 7 / 8 / (16 * 16 / 8 * 128 / 130 * GB))


def test_a_torus() -> None:
    # 8 machines in a 4 x 2 torus with cables of 8 x 50 / 4 = 100 GB/s. A machine has two along the
    # ring of four and two to its other neighbour: 400 GB/s, what its NICs do. Between the halves
    # two rings of four are cut at two places each: 4 cables.
    changes = {"fabric.kind": "torus", "fabric.oversubscription": 4.0}
    box = load_cluster("dgx-h100", nodes=8, **changes)
    assert dict(fabric_cuts(box, None)) == pytest.approx({8: 400 * GB, 32: 400 * GB})
    assert least(box, "all_to_all") == pytest.approx(S * 32 * 32 / 64 / (400 * GB))
    # Of two machines alone every rank sends half of S to the other one.
    assert least(box, "all_to_all", tuple(range(16))) == pytest.approx(8 * S / 2 / (400 * GB))


def test_fabrics_that_carry_everything_need_no_cut() -> None:
    for kind in ("rail-optimized", "fat-tree", "single-switch"):
        assert fabric_cuts(load_cluster("dgx-h100", nodes=8, **{"fabric.kind": kind}), None) == ()


def test_a_ring_of_cables() -> None:
    # l40sx8: 2 NICs, so 1 cable of 50 GB/s (400 Gbit/s) to each neighbour; any half has two ends.
    box = load_cluster("l40sx8", nodes=8, **{"fabric.kind": "direct"})
    rate = box.node.nics[0].rate
    assert len(box.node.nics) == 2
    assert fabric_cuts(box, None) == ((8, 2 * rate), (32, 2 * rate))
    assert least(box, "all_to_all") == pytest.approx(S * 32 * 32 / 64 / (2 * rate))


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("all_reduce", 120.0),
        ("all_gather", 30.0),  # the three's own parts, 10 each
        ("reduce_scatter", 90.0),  # sums of the nine others' parts
        ("all_to_all", 3 * 9 * 10.0),
        ("scatter", 90.0),
        ("gather", 90.0),
        ("broadcast", 120.0),
    ],
)
def test_what_must_leave_three_of_twelve_ranks(operation: str, expected: float) -> None:
    assert crossing(operation, 120, 12, 3) == pytest.approx(expected)


def test_an_uneven_all_to_all_is_bound_by_what_its_pairs_exchange() -> None:
    """Two machines of 8: rank 0 has S for each of 1 and 2, beside it, and rank 8 has S for rank 3.
    Out of rank 0's 450 GB/s of NVLink go 2 S; over the 8 x 50 GB/s between the machines S only.
    """
    box = load_cluster("dgx-h100", nodes=2)
    splits = [[0] * 16 for _ in range(16)]
    splits[0][1] = splits[0][2] = splits[8][3] = S
    asked = Collective.uneven(splits, dtype="uint8")
    assert bound(asked, box, place(box, None)) == pytest.approx(2 * S / (450 * GB))
    # Rank 8 sends 4 S more to other ranks of that machine: 5 S enter it.
    splits[8][4:8] = [S] * 4
    asked = Collective.uneven(splits, dtype="uint8")
    assert bound(asked, box, place(box, None)) == pytest.approx(5 * S / (400 * GB))
    # Of a group in another order, positions 0 and 8 are not in the machines that they seem to be.
    turned = Collective.uneven(splits, dtype="uint8", ranks=[*range(8, 16), *range(8)])
    same = bound(turned, box, place(box, turned.ranks))
    assert same == pytest.approx(5 * S / (400 * GB))


@pytest.mark.parametrize("name", ["dgx-h100", "l40sx8", "alps"])
def test_an_even_one_given_by_its_splits_has_the_same_bound(name: str) -> None:
    box = load_cluster(name, nodes=4, **{"fabric.kind": "torus"})
    n = box.n_ranks
    each = S // n
    given = Collective.uneven([[each] * n] * n, dtype="uint8")
    assert bound(given, box, place(box, None)) == pytest.approx(least(box, "all_to_all"))


def test_twice_the_bytes_take_twice_as_long() -> None:
    box = load_cluster("alps", nodes=16)
    for operation in OPERATIONS:
        one, two = (
            bound(Collective(operation, nbytes=n), box, place(box, None)) for n in (S, 2 * S)
        )
        assert two == pytest.approx(2 * one)
