"""Devices and links of a machine whose source names no speeds: what the GPU's part adds."""

from __future__ import annotations

from pathlib import Path

from commsim.errors import SpecError
from commsim.topology import parts
from commsim.topology.node import Cpu, Gpu, NodeLink
from commsim.topology.parts import GpuPart

SPEEDS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}  # GT/s of a lane by PCIe generation


def read_text(path: str | Path) -> str:
    """The text of a file in UTF-8, or in UTF-16 as Windows' shells write it."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise SpecError([f"{path}: cannot be read: {error.strerror or error}"]) from error
    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    return data.decode("utf-16" if wide else "utf-8-sig", errors="replace")


def gpu_record(name: str, index: int, part: GpuPart | None) -> Gpu:
    """A GPU of this part; of part "" where it is not known."""
    if part is None:
        return Gpu(name=name, index=index, part="")
    return Gpu(
        name=name,
        index=index,
        part=part.name,
        capability=part.capability,
        gpudirect=part.gpudirect,
    )


def pcie_link(source: str, target: str, part: GpuPart | None) -> NodeLink:
    """A PCIe link as wide and fast as the GPU's own; bandwidth and speed 0 where not known."""
    if part is None or not part.pcie_generation:
        return NodeLink(source=source, target=target, kind="pcie", bandwidth=0.0, width=0)
    return NodeLink(
        source=source,
        target=target,
        kind="pcie",
        bandwidth=parts.pcie_bandwidth(part.pcie_generation, part.pcie_width),
        width=part.pcie_width,
        speed=SPEEDS[part.pcie_generation],
    )


def socket_links(cpus: tuple[Cpu, ...]) -> list[NodeLink]:
    """A link between every two CPUs, its bandwidth not known."""
    return [
        NodeLink(source=a.name, target=b.name, kind="socket", bandwidth=0.0)
        for i, a in enumerate(cpus)
        for b in cpus[i + 1 :]
    ]
