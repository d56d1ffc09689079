"""A two-socket machine made by hand."""

from __future__ import annotations

from commsim.report.machine import distance, gpu_rate, picture
from commsim.topology.node import Cpu, Gpu, Nic, NodeLink, NodeTopology, PcieSwitch

GB = 1e9


def link(source: str, target: str, kind: str = "pcie", bandwidth: float = 25 * GB) -> NodeLink:
    return NodeLink(source=source, target=target, kind=kind, bandwidth=bandwidth)


#   cpu0 ─ sw0 ─ gpu0, gpu1, nic0          cpu1 ─ gpu2, nic2
#        └ sw1 ─ nic1  (sw1 hangs below sw0)
NODE = NodeTopology(
    gpus=tuple(Gpu(name=f"gpu{i}", index=i, part="A100") for i in range(3)),
    nics=tuple(Nic(name=f"nic{i}", index=i, card=f"card{i}", rate=10 * GB) for i in range(3)),
    cpus=tuple(Cpu(name=f"cpu{i}", numa=i, arch="x86_64", vendor="intel") for i in range(2)),
    switches=(PcieSwitch(name="sw0"), PcieSwitch(name="sw1")),
    links=(
        link("sw0", "cpu0"),
        link("sw1", "sw0"),
        link("gpu0", "sw0"),
        link("gpu1", "sw0"),
        link("card0", "sw0"),
        link("card1", "sw1"),
        link("gpu2", "cpu1", bandwidth=12 * GB),
        link("card2", "cpu1"),
        link("cpu0", "cpu1", "socket", 20 * GB),
        link("gpu0", "gpu1", "nvlink", 100 * GB),
        link("gpu0", "gpu1", "nvlink", 50 * GB),
    ),
)


def test_distances_are_nvidia_smis() -> None:
    assert [distance(NODE, 0, nic) for nic in range(3)] == ["PIX", "PXB", "SYS"]
    assert [distance(NODE, 2, nic) for nic in range(3)] == ["SYS", "SYS", "PHB"]


def test_gpu_rate_is_nvlink_else_pcie() -> None:
    assert gpu_rate(NODE, (0, 1)) == 150 * GB  # both cables
    # A ring gpu0 -> gpu2 -> gpu0 uses every link once in each direction: the slowest is gpu2's.
    assert gpu_rate(NODE, (0, 2)) == 12 * GB


def test_picture_shows_every_device_once_below_its_parent() -> None:
    lines = picture(NODE)
    text = "\n".join(lines)
    for name in ("gpu0", "gpu1", "gpu2", "nic0", "nic1", "nic2", "sw0", "sw1", "cpu0", "cpu1"):
        assert sum(name in line.split(":")[0] or f" {name} " in line for line in lines) == 1, text
    indent = {line.strip("│├└─ ").split()[0].rstrip(":;"): len(line) for line in lines}
    depth = {
        name: next(len(line) - len(line.lstrip("│├└─ ")) for line in lines if name in line)
        for name in ("cpu0", "sw0", "gpu0", "sw1", "card1", "cpu1", "gpu2")
    }
    assert indent.keys() >= depth.keys()
    assert depth["cpu0"] == depth["cpu1"] == 0
    assert depth["sw0"] == depth["gpu2"] == 3
    assert depth["gpu0"] == depth["sw1"] == 6
    assert depth["card1"] == 9
    assert "gpu0 (A100): 25 GB/s PCIe, 150 GB/s NVLink" in text
