from __future__ import annotations

import pytest

from commsim.collectives.collective import Collective
from commsim.libraries.lookup import library
from commsim.prediction import Prediction, predict
from commsim.report.binding import binding, part
from commsim.report.drawing import drawing
from commsim.topology.load import load_cluster
from commsim.units import GIB, KIB, MIB


def asked(name: str, nbytes: int, nodes: int = 1, by: str = "nccl", **more: object) -> Prediction:
    cluster = load_cluster(name, nodes=nodes, **more)
    return predict(Collective("all_reduce", nbytes=nbytes), cluster, library(by))


@pytest.mark.parametrize(
    ("found", "meant"),
    [
        (asked("dgx-h100", GIB), "nvlink"),
        (asked("dgx-h100", GIB, nodes=4), "nic"),
        (asked("dgx-h100", KIB, nodes=4), ""),  # latency is no link's
        (asked("l40sx8", GIB), "pcie"),
        (asked("dgx-h100", 64 * MIB, nodes=4, by="gloo"), ""),  # copies and TCP stacks bind
    ],
)
def test_the_part_is_the_one_that_the_bottleneck_names(found: Prediction, meant: str) -> None:
    assert binding(found) == meant, found.bottleneck


def test_an_oversubscribed_fabric_binds_between_switches() -> None:
    cluster = load_cluster("dgx-h100", nodes=64, **{
        "fabric.oversubscription": 8.0, "fabric.kind": "fat-tree",
    })  # fmt: skip
    found = predict(Collective("all_to_all", nbytes=GIB), cluster)
    assert found.bottleneck.startswith("the fabric")
    assert binding(found) == "fabric"


def test_every_link_of_a_picture_has_its_part() -> None:
    wires = drawing(load_cluster("dgx-h100", nodes=2)).wires
    count = {name: sum(w.part == name for w in wires) for name in {w.part for w in wires}}
    # 8 GPUs with NVLink and PCIe each, 8 NICs with a port and a cable, a spine above 8 leaves.
    assert (count["nvlink"], count["pcie"], count["nic"], count["fabric"]) == (16, 16, 32, 8)


def test_parts() -> None:
    assert part("network", {"nic", "leaf"}) == "nic"
    assert part("network", {"leaf", "spine"}) == "fabric"
    assert part("pcie", {"gpu", "pcie-switch"}) == "pcie"
    assert part("pcie", {"cpu", "pcie-switch"}) == ""
    assert part("socket", {"cpu"}) == ""
