"""A machine from the text of `nvidia-smi topo -m` (also -mp, and -p2p r, w, p).

The matrix names distances and NVLink counts, no speeds. With the GPU's name given, PCIe and NVLink
rates come from its part; without, links have bandwidth and speed 0 (not known). NIC rates are never
in the text; the CPUs' vendor is not either. https://docs.nvidia.com/deploy/nvidia-smi/ (topo)
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from commsim.errors import SpecError
from commsim.topology import parts
from commsim.topology.distances import (
    NODE,
    PHB,
    PIX,
    PXB,
    SYS,
    WORDS,
    contradictions,
    tree,
)
from commsim.topology.gpu_records import gpu_record, pcie_link, read_text, socket_links
from commsim.topology.matrices import GPU_LABEL, Matrix, read_legend, read_matrices
from commsim.topology.node import Cpu, Nic, NodeLink, NodeTopology, NvSwitch, PcieSwitch
from commsim.topology.parts import GpuPart
from commsim.units import BytesPerSecond

DISTANCES = {"PIX": PIX, "PXB": PXB, "PHB": PHB, "NODE": NODE, "SYS": SYS, "SOC": SYS}
# The most NVLinks that any GPU has: 18 (H100, B200). Only used where the GPU is not named.
MOST_LINKS = 18
_TAKEN = re.compile(r"(gpu|cpu|pcie)[0-9]+|nvswitch")  # our own names of other devices


def read(path: str | Path, gpu: str | None = None, nic_rate: BytesPerSecond = 0.0) -> NodeTopology:
    """The machine that a file with the output of nvidia-smi describes.

    gpu: the GPUs' name in the catalogue, for rates and links; nic_rate: of every NIC, bytes/s.
    Raises SpecError naming line and cell.
    """
    return parse(read_text(path), gpu=gpu, nic_rate=nic_rate, where=str(path))


def parse(
    text: str,
    *,
    gpu: str | None = None,
    nic_rate: BytesPerSecond = 0.0,
    where: str = "nvidia-smi topo",
) -> NodeTopology:
    """The machine that the output of nvidia-smi describes; the same as `read` for text."""
    part = parts.gpu(gpu) if gpu is not None else None
    matrices = read_matrices(text, where)
    peers = [m for m in matrices if m.peer]
    topologies = [m for m in matrices if not m.peer]
    refused = any(cell not in ("X", "OK") for m in peers if m.counted for cell in m.cells.values())
    matrix = topologies[0] if topologies else replace(peers[0], cells={})
    names = read_legend(text)
    node = _machine(matrix, part, names, nic_rate, where)
    if refused or (part is not None and not part.p2p):
        node = replace(node, gpu_peer_access=False)
    return node


def _machine(
    matrix: Matrix,
    part: GpuPart | None,
    names: dict[str, str],
    nic_rate: BytesPerSecond,
    where: str,
) -> NodeTopology:
    labels = matrix.labels
    known = {
        (i, j): DISTANCES[cell]
        for i, a in enumerate(labels)
        for j, b in enumerate(labels[i + 1 :], start=i + 1)
        if (cell := matrix.cells.get((a, b), "")) in DISTANCES
    }
    problems = [
        f"{where}: line {matrix.lines[labels[c.pair[0]]]}: row {labels[c.pair[0]]}, column "
        f"{labels[c.pair[1]]}: found {WORDS[c.found]}, but other cells put both at most "
        f"{WORDS[c.nearest]} apart; check the cells of these two devices"
        for c in contradictions(len(labels), known)
    ]
    links, nvswitch = _nvlinks(matrix, part, where, problems)
    if problems:
        raise SpecError(problems)
    home = [_numa(matrix.affinity.get(label, ())) for label in labels]
    shape = tree(len(labels), known, lambda a, b: home[a] == home[b] or "" in (home[a], home[b]))
    numbers = _numa_numbers(shape.numa, home)
    cpus = tuple(
        Cpu(name=f"cpu{n}", numa=n, arch=_arch(part), vendor=_vendor(part)) for n in numbers
    )
    device = [_name(label, names) for label in labels]
    problems = [
        f"{where}: {label} is called {name!r}, expected a name that no other device has"
        for i, (label, name) in enumerate(zip(labels, device, strict=True))
        if not GPU_LABEL.fullmatch(label) and (_TAKEN.fullmatch(name) or name in device[:i])
    ]
    if problems:
        raise SpecError(problems)
    for i, name in enumerate(device):
        above = shape.parent[i]
        target = cpus[shape.numa[i]].name if above is None else f"pcie{above}"
        links.append(pcie_link(name, target, part))
    for s, over in enumerate(shape.switches):
        target = cpus[shape.switch_numa[s]].name if over is None else f"pcie{over}"
        links.append(pcie_link(f"pcie{s}", target, part))
    links += socket_links(cpus)
    gpus = [i for i, label in enumerate(labels) if GPU_LABEL.fullmatch(label)]
    nics = [i for i in range(len(labels)) if i not in gpus]
    return NodeTopology(
        gpus=tuple(gpu_record(device[i], int(labels[i][3:]), part) for i in gpus),
        nics=tuple(
            Nic(name=device[i], index=k, card=device[i], rate=nic_rate) for k, i in enumerate(nics)
        ),
        cpus=cpus,
        switches=tuple(PcieSwitch(name=f"pcie{s}") for s in range(len(shape.switches))),
        nvswitch=nvswitch,
        links=tuple(links),
    )


def _nvlinks(
    matrix: Matrix, part: GpuPart | None, where: str, problems: list[str]
) -> tuple[list[NodeLink], NvSwitch | None]:
    """NVLink cables; an NVSwitch where the same count to all others is more than a GPU has links.

    4 GPUs with NV4 to each other use 12 links each: a mesh (A100). 8 with NV12 would use 84: a
    switch. Two GPUs with all their links to each other are taken for a cable, unless the GPU named
    is one that is only sold with a switch.
    """
    counts = {
        pair: int(cell[2:])
        for pair, cell in matrix.cells.items()
        if cell.startswith("NV") and matrix.labels.index(pair[0]) < matrix.labels.index(pair[1])
    }
    has = MOST_LINKS if part is None else part.link_count
    for (a, b), count in counts.items():
        if count > has:
            whose = "any GPU" if part is None else part.name
            problems.append(
                f"{where}: line {matrix.lines[a]}: row {a}, column {b}: found NV{count}, "
                f"expected at most the {has} NVLinks of {whose}; is the GPU another one?"
            )
    if problems or not counts:
        return [], None
    rate = 0.0 if part is None else part.link_rate
    members = [label for label in matrix.labels if any(label in pair for pair in counts)]
    n, most = len(members), max(counts.values())
    complete = len(counts) == n * (n - 1) // 2 and len(set(counts.values())) == 1
    only_switched = part is not None and part.sxm and part.domain > 4 and most == part.link_count
    if complete and ((n > 2 and most * (n - 1) > has) or only_switched):
        switch = NvSwitch()
        return [
            NodeLink(
                source=label.lower(),
                target=switch.name,
                kind="nvlink",
                bandwidth=most * rate,
                width=most,
            )
            for label in members
        ], switch
    totals = {m: sum(c for pair, c in counts.items() if m in pair) for m in members}
    for member, total in totals.items():
        if total > has:
            problems.append(
                f"{where}: line {matrix.lines[member]}: row {member}: {total} NVLinks in all, "
                f"expected at most {has}, or the same count to every GPU (NVSwitch)"
            )
    return [
        NodeLink(
            source=a.lower(), target=b.lower(), kind="nvlink", bandwidth=count * rate, width=count
        )
        for (a, b), count in counts.items()
    ], None


def _arch(part: GpuPart | None) -> str:
    return "arm64" if part is not None and part.c2c_count else "x86_64"


def _vendor(part: GpuPart | None) -> str:
    return "arm" if part is not None and part.c2c_count else "other"


def _name(label: str, names: dict[str, str]) -> str:
    if re.fullmatch(r"(GPU|NIC)[0-9]+", label):
        return names.get(label, label.lower())
    return label


def _numa(affinity: tuple[str, ...]) -> str:
    """The NUMA node of a row by its NUMA column, else its CPU column as text, else ""."""
    for value in (affinity[1:2], affinity[0:1]):
        if value and re.fullmatch(r"[0-9][0-9,-]*", value[0]):
            return value[0]
    return ""


def _numa_numbers(box_of: tuple[int, ...], home: list[str]) -> list[int]:
    """A number for each CPU: the NUMA node that a GPU of it names, else the next free one."""
    wanted: dict[int, int] = {}
    for box, name in zip(box_of, home, strict=True):
        if re.fullmatch(r"[0-9]{1,4}", name) and int(name) not in wanted.values():
            wanted.setdefault(box, int(name))
    free = (n for n in range(len(box_of) * 2 + 1) if n not in wanted.values())
    return [wanted[box] if box in wanted else next(free) for box in range(max(box_of) + 1)]
