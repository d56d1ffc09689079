from __future__ import annotations

from commsim.report.drawing import LEVELS, drawing
from commsim.topology.load import load_cluster


def test_every_device_of_the_drawn_nodes_stands_somewhere_of_its_own() -> None:
    """dgx-h100: 8 GPUs, 8 NICs and their cards, 8 PCIe switches, 2 CPUs, 1 NVSwitch a node."""
    drawn = drawing(load_cluster("dgx-h100", nodes=2))
    kinds = [d.kind for d in drawn.dots]
    counts = {kind: kinds.count(kind) for kind in LEVELS}
    assert [counts[k] for k in ("gpu", "nic", "card", "pcie-switch", "cpu", "nvswitch")] == [
        16, 16, 16, 16, 4, 2,
    ]  # fmt: skip
    assert len({(d.x, d.y) for d in drawn.dots}) == len(drawn.dots)
    # rail-optimized: a leaf for each of the 8 NICs of a node
    assert counts["leaf"] == 8


def test_of_many_nodes_the_first_are_drawn_and_only_switches_that_they_reach() -> None:
    cluster = load_cluster("dgx-h100", nodes=512)
    drawn = drawing(cluster)
    assert drawn.nodes == 4
    leaves = [d.name for d in drawn.dots if d.kind == "leaf"]
    reached = {v for leaf in leaves for v in cluster.fabric_neighbours[leaf] if "spine" in v}
    assert sum(d.kind == "spine" for d in drawn.dots) == 16 < len(reached)
    assert drawn.left_out["spine"] == len(reached) - 16
    joined = {w.source for w in drawn.wires} | {w.target for w in drawn.wires}
    names = {d.name for d in drawn.dots}
    assert joined == names
    assert not any(name.startswith("node4/") for name in names)


def test_the_busier_direction_of_a_link_is_its_load() -> None:
    cluster = load_cluster("dgx-h100")
    up, down = "node0/gpu3 -> node0/nvswitch", "node0/nvswitch -> node0/gpu3"
    drawn = drawing(cluster, {up: 0.25, down: 0.75})
    loads = {frozenset((w.source, w.target)): w.load for w in drawn.wires}
    assert loads[frozenset(("node0/gpu3", "node0/nvswitch"))] == 0.75
    assert loads[frozenset(("node0/gpu2", "node0/nvswitch"))] == 0.0
    assert all(w.load is None for w in drawing(cluster).wires)


def test_gpus_joined_directly_hang_on_a_bow_so_that_no_link_hides_another() -> None:
    drawn = drawing(load_cluster("lumi", nodes=1))
    levels = [d.y for d in drawn.dots if d.kind == "gpu"]
    assert levels[0] > levels[1] > levels[3]
    assert levels[4] < levels[7]
