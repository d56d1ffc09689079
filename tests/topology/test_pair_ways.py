"""Which way a message takes between two GPUs, and what all of them together carry."""

from __future__ import annotations

import pytest

from commsim.topology.load import load_cluster
from commsim.topology.pair_ways import mesh_share, pair_way

EIGHT = tuple(range(8))


def way(cluster: str, a: int, b: int) -> tuple[str, ...]:
    node = load_cluster(cluster).node
    return pair_way(node, node.gpus[a].name, node.gpus[b].name)


def test_a_pair_takes_its_link_or_one_relay_or_the_switch_or_pcie() -> None:
    assert len(way("dgx-1v", 0, 1)) == 2
    assert len(way("dgx-1v", 0, 5)) == 3  # DGX-1V: 0 and 5 share neighbours 1 and 4
    assert "nvswitch" in way("dgx-h100", 0, 5)[1]
    assert len(way("rtx4090x8", 0, 5)) > 3  # up to a CPU and down
    assert way("dgx-1v", 3, 3) == ()


def test_a_full_mesh_carries_all_of_its_links_if_all_pairs_talk() -> None:
    node = load_cluster("mi300x").node  # seven links each
    assert mesh_share(node, EIGHT, "all") == pytest.approx(1)
    assert mesh_share(node, EIGHT, "root") == pytest.approx(1)
    assert mesh_share(node, EIGHT, "shift") == pytest.approx(1 / 7)


def test_half_a_mesh() -> None:
    """Four of MI300X's eight: three links to the others; two: one link, all of it."""
    node = load_cluster("mi300x").node
    assert mesh_share(node, (0, 1, 2, 3), "shift") == pytest.approx(1 / 3)
    assert mesh_share(node, (0, 1), "shift") == pytest.approx(1)


def test_the_cube_mesh_pays_for_relays_and_single_links() -> None:
    """All pairs of a DGX-1V: each GPU sends 4 direct messages and 3 with two hops, so its six links
    carry at least 10 for 7: at most 7/10 of their sum. Neighbours in a ring: 0-1 has one of six."""
    node = load_cluster("dgx-1v").node
    assert 0 < mesh_share(node, EIGHT, "all") <= 0.7
    assert mesh_share(node, EIGHT, "shift") <= 1 / 6 + 1e-12


def test_nothing_to_share_behind_a_switch_or_without_nvlink() -> None:
    for name in ("dgx-h100", "rtx4090x8"):
        assert mesh_share(load_cluster(name).node, EIGHT, "shift") == 1
