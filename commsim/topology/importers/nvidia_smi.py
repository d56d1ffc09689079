"""A machine from the text of `nvidia-smi topo -m` (also -mp, and -p2p r, w, p).

The matrix names distances and NVLink counts, no speeds. With the GPU's name given, PCIe and NVLink
rates come from its part; without, links have bandwidth and speed 0 (not known). NIC rates are never
in the text. The CPUs' vendor is not either. What the columns look like differs by driver: NICs are
NIC0 with a legend or mlx5_0 by name, NUMA columns come and go and may be glued together, headers
carry escape codes. https://docs.nvidia.com/deploy/nvidia-smi/ (topo)
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
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
from commsim.topology.node import Cpu, Gpu, Nic, NodeLink, NodeTopology, NvSwitch, PcieSwitch
from commsim.topology.parts import GpuPart
from commsim.units import BytesPerSecond

DISTANCES = {"PIX": PIX, "PXB": PXB, "PHB": PHB, "NODE": NODE, "SYS": SYS, "SOC": SYS}
PEER = ("OK", "CNS", "GNS", "TNS", "NS", "DR", "U")
EXPECTED = "X, NV1 and up, PIX, PXB, PHB, NODE or SYS"
# The most NVLinks that any GPU has: 18 (H100, B200). Only used where the GPU is not named.
MOST_LINKS = 18
SPEEDS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}  # GT/s of a lane by PCIe generation

# Pasted text often keeps "[4m" and loses the escape character before it.
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\[[0-9;]{1,5}m")
_CELL = re.compile(r"NV[0-9]{1,4}|PIX|PXB|PHB|NODE|SYS|SOC|X|OK|CNS|GNS|TNS|NS|DR|U")
_AFFINITY = re.compile(r"CPU Affinity|NUMA Affinity|GPU NUMA ID")
_DEVICE = re.compile(r"[A-Za-z][\w.:-]*")
_GPU = re.compile(r"GPU([0-9]{1,4})")
_GLUED = re.compile(r"(?<=[0-9])(?=GPU[0-9]|NIC[0-9]|mlx[0-9]_)")
_TAKEN = re.compile(r"(gpu|cpu|pcie)[0-9]+|nvswitch")  # our own names of other devices
_LEGEND = re.compile(r"\s*(NIC[0-9]{1,4}):\s*(\S+)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matrix:
    """One table: labels in column order, cells by (row, column), the line number of each row.

    peer: does it tell what the driver allows (-p2p), not how devices are joined?
    """

    labels: tuple[str, ...]
    cells: dict[tuple[str, str], str]
    lines: dict[str, int]
    affinity: dict[str, tuple[str, ...]]
    peer: bool
    counted: bool


def read(path: str | Path, gpu: str | None = None, nic_rate: BytesPerSecond = 0.0) -> NodeTopology:
    """The machine that a file with the output of nvidia-smi describes.

    gpu: the GPUs' name in the catalogue, for rates and links; nic_rate: of every NIC, bytes/s.
    Raises SpecError naming line and cell.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        raise SpecError([f"{path}: cannot be read: {error.strerror or error}"]) from error
    return parse(text, gpu=gpu, nic_rate=nic_rate, where=str(path))


def parse(
    text: str,
    *,
    gpu: str | None = None,
    nic_rate: BytesPerSecond = 0.0,
    where: str = "nvidia-smi topo",
) -> NodeTopology:
    """The machine that the output of nvidia-smi describes; the same as `read` for text."""
    part = parts.gpu(gpu) if gpu is not None else None
    matrices = _matrices(text, where)
    peers = [m for m in matrices if m.peer]
    topologies = [m for m in matrices if not m.peer]
    refused = any(cell not in ("X", "OK") for m in peers if m.counted for cell in m.cells.values())
    matrix = topologies[0] if topologies else replace(peers[0], cells={})
    names = _legend(text)
    node = _machine(matrix, part, names, nic_rate, where)
    if refused or (part is not None and not part.p2p):
        node = replace(node, gpu_peer_access=False)
    return node


# ---- the text ----


def _matrices(text: str, where: str) -> list[_Matrix]:
    lines = [_ESCAPE.sub("", line) for line in text.splitlines()]
    found: list[_Matrix] = []
    problems: list[str] = []
    command = ""
    at = 0
    while at < len(lines):
        if "nvidia-smi" in lines[at]:
            command = lines[at]
        labels = _header(lines[at])
        if labels is None or not _starts_table(lines[at + 1 : at + 2], labels):
            at += 1
            continue
        matrix, after = _matrix(lines, at, labels, command, where, problems)
        if matrix.labels:
            found.append(matrix)
        at = max(after, at + 1)
    if not problems and not found:
        problems.append(
            f"{where}: no matrix found; expected a header line such as "
            '"GPU0 GPU1 CPU Affinity NUMA Affinity", as `nvidia-smi topo -m` prints it'
        )
    if problems:
        raise SpecError(problems)
    return found


def _header(line: str) -> tuple[str, ...] | None:
    """The devices of a header line, () for a table of affinities alone; None for other lines."""
    match = _AFFINITY.search(line)
    devices = line[: match.start()] if match else line
    labels = tuple(label for token in devices.split() for label in _GLUED.split(token))
    if not labels:
        return () if match and match.group() == "CPU Affinity" else None
    if not _GPU.fullmatch(labels[0]):
        return None
    if not all(_DEVICE.fullmatch(label) for label in labels) or any(
        _CELL.fullmatch(label) for label in labels
    ):
        return None
    return labels


def _starts_table(after: list[str], labels: tuple[str, ...]) -> bool:
    """Whether the line after a header is a row; a sentence may begin with GPU0 too."""
    first = after[0].split()[:1] if after else []
    return bool(first) and (first[0] in labels or _looks_like_row(first[0], labels))


def _matrix(
    lines: list[str],
    header: int,
    labels: tuple[str, ...],
    command: str,
    where: str,
    problems: list[str],
) -> tuple[_Matrix, int]:
    """The table below a header line and the line after it; adds what is wrong to `problems`."""
    place = f"{where}: line {header + 1}"
    if len(set(labels)) < len(labels):
        double = next(label for label in labels if labels.count(label) > 1)
        problems.append(f"{place}: column {double} stands twice, expected each device once")
    cells: dict[tuple[str, str], str] = {}
    rows: dict[str, int] = {}
    affinity: dict[str, tuple[str, ...]] = {}
    at = header + 1
    while at < len(lines):
        tokens = lines[at].split()
        if not tokens or (tokens[0] not in labels and not _looks_like_row(tokens[0], labels)):
            break
        row, place = tokens[0], f"{where}: line {at + 1}"
        at += 1
        if labels and row not in labels:
            problems.append(f"{place}: row {row}: not among the columns {', '.join(labels)}")
            continue
        if row in rows:
            problems.append(f"{place}: row {row} stands twice, expected each device once")
            continue
        rows[row] = at
        values, rest = _cells(tokens[1:], len(labels))
        affinity[row] = rest
        for column, value in zip(labels, values, strict=False):
            cells[row, column] = value
        if len(values) < len(labels):
            problems.append(
                f"{place}: row {row}, column {labels[len(values)]}: "
                f"found {rest[0] if rest else 'the end of the line'!r}, expected {EXPECTED}"
            )
    if not labels:
        labels = tuple(row for row in rows if _GPU.fullmatch(row))
        cells = {}
    else:
        problems += [
            f"{where}: line {at}: the table ends without a row for {label}; was the text cut off?"
            for label in labels
            if label not in rows
        ]
        problems += _check(labels, cells, rows, where)
    peer = any(cell in PEER for cell in cells.values())
    kind = re.search(r"-p2p\s+(\w+)", command)
    return (
        _Matrix(
            labels=labels,
            cells=cells,
            lines=rows,
            affinity=affinity,
            peer=peer,
            # -p2p n and a tell of NVLink and atomics, which a machine may well do without.
            counted=kind is None or kind[1] in ("r", "w", "rw", "p"),
        ),
        at,
    )


def _looks_like_row(token: str, labels: tuple[str, ...]) -> bool:
    return bool(re.fullmatch(r"(GPU|NIC)[0-9]+" if labels else r"GPU[0-9]{1,4}", token))


def _cells(tokens: list[str], count: int) -> tuple[list[str], tuple[str, ...]]:
    """The first `count` cells of a row, glued together or not, and what comes after."""
    values: list[str] = []
    for i, token in enumerate(tokens):
        if len(values) >= count:
            return values, tuple(tokens[i:])
        glued = _CELL.findall(token)
        if "".join(glued) != token:
            return values, tuple(tokens[i:])
        values += glued
    return values[:count], ()


def _check(
    labels: tuple[str, ...],
    cells: dict[tuple[str, str], str],
    rows: dict[str, int],
    where: str,
) -> list[str]:
    """What is wrong with readable cells: diagonal, symmetry, mixed tables, NVLink to a NIC."""
    problems = []
    peer = any(cell in PEER for cell in cells.values())
    for (row, column), cell in cells.items():
        place = f"{where}: line {rows[row]}: row {row}, column {column}"
        mirror = cells.get((column, row), cell)
        if (cell == "X") != (row == column):
            expected = "X on the diagonal" if row == column else "X on the diagonal only"
            problems.append(f"{place}: found {cell!r}, expected {expected}")
        elif peer and cell not in (*PEER, "X"):
            problems.append(f"{place}: found {cell!r}, expected one of {', '.join(PEER)}")
        elif cell.startswith("NV") and int(cell[2:]) < 1:
            problems.append(f"{place}: found {cell!r}, expected at least one link, NV1")
        elif cell.startswith("NV") and not (_GPU.fullmatch(row) and _GPU.fullmatch(column)):
            problems.append(f"{place}: found {cell!r}, expected NVLink between GPUs only")
        elif not peer and cell != mirror and labels.index(row) < labels.index(column):
            problems.append(
                f"{place}: found {cell!r}, but row {column}, column {row} says {mirror!r}; "
                "expected the same in both"
            )
    return problems


def _legend(text: str) -> dict[str, str]:
    matches = (_LEGEND.fullmatch(_ESCAPE.sub("", line)) for line in text.splitlines())
    return {match[1]: match[2] for match in matches if match}


# ---- the machine ----


def _machine(
    matrix: _Matrix,
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
        if not _GPU.fullmatch(label) and (_TAKEN.fullmatch(name) or name in device[:i])
    ]
    if problems:
        raise SpecError(problems)
    pcie = _pcie_link(part)
    for i, name in enumerate(device):
        above = shape.parent[i]
        target = cpus[shape.numa[i]].name if above is None else f"pcie{above}"
        links.append(replace(pcie, source=name, target=target))
    for s, over in enumerate(shape.switches):
        target = cpus[shape.switch_numa[s]].name if over is None else f"pcie{over}"
        links.append(replace(pcie, source=f"pcie{s}", target=target))
    links += [
        NodeLink(source=a.name, target=b.name, kind="socket", bandwidth=0.0)
        for i, a in enumerate(cpus)
        for b in cpus[i + 1 :]
    ]
    gpus = [i for i, label in enumerate(labels) if _GPU.fullmatch(label)]
    nics = [i for i in range(len(labels)) if i not in gpus]
    return NodeTopology(
        gpus=tuple(_gpu(device[i], int(labels[i][3:]), part) for i in gpus),
        nics=tuple(
            Nic(name=device[i], index=k, card=device[i], rate=nic_rate) for k, i in enumerate(nics)
        ),
        cpus=cpus,
        switches=tuple(PcieSwitch(name=f"pcie{s}") for s in range(len(shape.switches))),
        nvswitch=nvswitch,
        links=tuple(links),
    )


def _nvlinks(
    matrix: _Matrix, part: GpuPart | None, where: str, problems: list[str]
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


def _pcie_link(part: GpuPart | None) -> NodeLink:
    """A link as the GPU's own, its ends still open; nothing known without the GPU."""
    if part is None or not part.pcie_generation:
        return NodeLink(source="", target="", kind="pcie", bandwidth=0.0, width=0)
    return NodeLink(
        source="",
        target="",
        kind="pcie",
        bandwidth=parts.pcie_bandwidth(part.pcie_generation, part.pcie_width),
        width=part.pcie_width,
        speed=SPEEDS[part.pcie_generation],
    )


def _gpu(name: str, index: int, part: GpuPart | None) -> Gpu:
    if part is None:
        return Gpu(name=name, index=index, part="")
    return Gpu(
        name=name,
        index=index,
        part=part.name,
        capability=part.capability,
        gpudirect=part.gpudirect,
    )


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
