from __future__ import annotations

import pytest

from commsim.errors import UnreachableError
from commsim.topology.load import load_cluster
from commsim.topology.reachable import check_reachable


def machine(*links: tuple[str, str, str], nodes: int = 1) -> dict[str, object]:
    """Three GPUs, a NIC and a CPU, joined by these (source, target, kind)."""
    gpu = {"kind": "gpu", "part": "A100-SXM4-80GB"}
    return {
        "name": "made",
        "nodes": nodes,
        "device": [
            *({"name": f"g{i}", **gpu} for i in range(3)),
            {"name": "n", "kind": "nic", "rate": "100Gbit/s"},
            {"name": "c", "kind": "cpu"},
        ],
        "link": [
            {"source": a, "target": b, "kind": kind, "bandwidth": "25GB/s"} for a, b, kind in links
        ],
    }


NVLINK = ("g0", "g1", "nvlink")
PCIE = tuple((name, "c", "pcie") for name in ("g1", "g2"))


def test_a_pair_that_nothing_joins() -> None:
    cluster = load_cluster(machine(NVLINK, ("g1", "c", "pcie"), ("n", "c", "pcie")))
    check_reachable(cluster, (0, 1))
    with pytest.raises(UnreachableError, match="no path from g0 to g2"):
        check_reachable(cluster, (0, 2))


def test_over_pcie() -> None:
    check_reachable(load_cluster(machine(NVLINK, *PCIE)), (1, 2))


def test_no_way_to_the_network() -> None:
    apart = load_cluster(machine(NVLINK, *PCIE, ("g0", "c", "pcie"), nodes=2))
    with pytest.raises(UnreachableError, match="no path from g0 to a NIC"):
        check_reachable(apart, None)
    joined = load_cluster(machine(NVLINK, *PCIE, ("g0", "c", "pcie"), ("n", "c", "pcie"), nodes=2))
    check_reachable(joined, None)
