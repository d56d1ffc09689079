"""A machine from the text of `rocm-smi --showtopo`.

Its tables give, for every two GPUs, a weight, a number of hops and the link type (XGMI or PCIE),
and the NUMA node of each GPU; no speeds, no NICs and no PCIe switches. With the GPU's name given,
rates come from its part; without, links have bandwidth and speed 0 (not known). Two GPUs one XGMI
hop apart are joined by a cable of link_count / (n - 1) links where all are joined to all, else of
one link. The NUMA lines say `GPU[0]` or, in older versions, `GPU 0`.
https://rocm.docs.amd.com/projects/rocm_smi_lib (--showtopo)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from commsim.errors import SpecError
from commsim.topology import parts
from commsim.topology.gpu_records import gpu_record, pcie_link, read_text, socket_links
from commsim.topology.node import Cpu, NodeLink, NodeTopology
from commsim.topology.parts import GpuPart

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_GPU = re.compile(r"GPU([0-9]{1,4})")
_NUMA = re.compile(
    r"\s*GPU\s?\[?([0-9]{1,4})\]?\s*:\s*\(Topology\)\s*Numa (Node|Affinity):\s*(\S+)\s*"
)
# Titles of the tables that are read, lower case; others (access, bandwidth) are left aside.
_TABLES = {
    "weight between two gpus": "weight",
    "hops between two gpus": "hops",
    "link type between two gpus": "type",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    labels: tuple[str, ...]
    cells: dict[tuple[str, str], str]
    lines: dict[str, int]


def read(path: str | Path, gpu: str | None = None) -> NodeTopology:
    """The machine that a file with the output of rocm-smi --showtopo describes.

    gpu: the GPUs' name in the catalogue, for rates. Raises SpecError naming line and cell.
    """
    return parse(read_text(path), gpu=gpu, where=str(path))


def parse(text: str, *, gpu: str | None = None, where: str = "rocm-smi topo") -> NodeTopology:
    """The machine that the output of rocm-smi --showtopo describes; the same as `read` for text."""
    part = parts.gpu(gpu) if gpu is not None else None
    lines = [_ESCAPE.sub("", line) for line in text.splitlines()]
    problems: list[str] = []
    tables: dict[str, _Table] = {}
    for at, line in enumerate(lines):
        # A title stands between rows of equal signs.
        kind = _TABLES.get(line.strip(" =\t").lower()) if "=" in line else None
        if kind is not None and kind not in tables:
            tables[kind] = _table(lines, at + 1, kind, where, problems)
    if "type" not in tables:
        problems.append(
            f'{where}: no table "Link Type between two GPUs" found; expected the whole output of '
            "`rocm-smi --showtopo`"
        )
    if problems:
        raise SpecError(problems)
    labels = tables["type"].labels
    for kind, table in tables.items():
        if table.labels != labels:
            problems.append(
                f"{where}: the tables of link types and of {kind} name different GPUs: "
                f"{', '.join(labels)} and {', '.join(table.labels)}; expected the same"
            )
    numa = _numa_nodes(lines, labels, where, problems)
    links = _xgmi(tables, part, where, problems)
    if problems:
        raise SpecError(problems)
    return _machine(labels, numa, links, part)


def _table(lines: list[str], start: int, kind: str, where: str, problems: list[str]) -> _Table:
    """The square table that starts at or after a line; adds what is wrong to `problems`."""
    at = start
    while at < len(lines) and not lines[at].strip():
        at += 1
    labels = tuple(lines[at].split()) if at < len(lines) else ()
    if not labels or not all(_GPU.fullmatch(label) for label in labels):
        problems.append(
            f"{where}: line {at + 1}: expected the columns GPU0 GPU1 ... of the {kind} table, "
            f"found {lines[at].strip()[:60] if at < len(lines) else 'the end of the text'!r}"
        )
        return _Table(labels=(), cells={}, lines={})
    if len(set(labels)) < len(labels):
        problems.append(f"{where}: line {at + 1}: a GPU stands twice, expected each once")
    cells: dict[tuple[str, str], str] = {}
    rows: dict[str, int] = {}
    for number, line in enumerate(lines[at + 1 :], start=at + 2):
        tokens = line.split()
        if not tokens or not _GPU.fullmatch(tokens[0]):
            break
        row, values = tokens[0], tokens[1:]
        place = f"{where}: line {number}: row {row}"
        if row in rows or row not in labels:
            problems.append(f"{place}: expected each of {', '.join(labels)} once")
            continue
        rows[row] = number
        if len(values) != len(labels):
            problems.append(
                f"{place}: found {len(values)} cells, expected {len(labels)} ({kind} of each GPU)"
            )
        for column, value in zip(labels, values, strict=False):
            cells[row, column] = value
            if not _fits(kind, value, row == column):
                expected = {"type": "XGMI or PCIE"}.get(kind, "a number")
                problems.append(
                    f"{place}, column {column}: found {value!r}, expected "
                    f"{'0' if row == column else expected}"
                )
    problems += [
        f"{where}: line {at + 1}: the {kind} table has no row for {label}; was the text cut off?"
        for label in labels
        if label not in rows
    ]
    problems += [
        f"{where}: line {rows[a]}: row {a}, column {b}: found {cell!r}, but row {b}, column {a} "
        f"says {cells[b, a]!r}; expected the same in both"
        for (a, b), cell in cells.items()
        if labels.index(a) < labels.index(b) and cells.get((b, a), cell) != cell
    ]
    return _Table(labels=labels, cells=cells, lines=rows)


def _fits(kind: str, value: str, diagonal: bool) -> bool:
    if diagonal:
        return value in ("0", "X")
    if kind == "type":
        return value.upper() in ("XGMI", "PCIE")
    return re.fullmatch(r"[0-9]{1,6}", value) is not None


def _numa_nodes(
    lines: list[str], labels: tuple[str, ...], where: str, problems: list[str]
) -> dict[str, int]:
    """The NUMA node of each GPU; 0 for all where the text names none."""
    found: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        match = _NUMA.fullmatch(line)
        if match is None or match[2] != "Node":
            continue
        label = f"GPU{int(match[1])}"
        if label not in labels:
            problems.append(
                f"{where}: line {number}: {label} has a NUMA node but stands in no table; "
                f"expected one of {', '.join(labels)}"
            )
        elif not re.fullmatch(r"-?[0-9]{1,4}", match[3]):
            problems.append(
                f"{where}: line {number}: {label}: found NUMA node {match[3]!r}, expected a number"
            )
        else:
            found[label] = max(0, int(match[3]))  # -1: the machine has no NUMA
    missing = [label for label in labels if label not in found]
    if found and missing and not problems:
        problems.append(f"{where}: no NUMA node for {', '.join(missing)}; was the text cut off?")
    return {label: found.get(label, 0) for label in labels}


def _xgmi(
    tables: dict[str, _Table], part: GpuPart | None, where: str, problems: list[str]
) -> list[NodeLink]:
    types = tables["type"]
    hops = tables["hops"].cells if "hops" in tables else {}
    pairs = [
        (a, b)
        for (a, b), kind in types.cells.items()
        if types.labels.index(a) < types.labels.index(b)
        and kind.upper() == "XGMI"
        and hops.get((a, b), "1") == "1"
    ]
    n = len(types.labels)
    width = 1
    if part is not None and pairs and not part.link_count:
        problems.append(
            f"{where}: line {types.lines[pairs[0][0]]}: row {pairs[0][0]}, column {pairs[0][1]}: "
            f"found XGMI, but {part.name} has no such links; is the GPU another one?"
        )
    elif part is not None and len(pairs) == n * (n - 1) // 2:
        width = max(1, part.link_count // (n - 1)) if n > 1 else 1
    rate = 0.0 if part is None else part.link_rate
    return [
        NodeLink(
            source=a.lower(), target=b.lower(), kind="xgmi", bandwidth=width * rate, width=width
        )
        for a, b in pairs
    ]


def _machine(
    labels: tuple[str, ...], numa: dict[str, int], links: list[NodeLink], part: GpuPart | None
) -> NodeTopology:
    vendor = "amd" if part is not None and part.vendor == "amd" else "other"
    cpus = tuple(
        Cpu(name=f"cpu{n}", numa=n, arch="x86_64", vendor=vendor)
        for n in sorted(set(numa.values()))
    )
    links += [pcie_link(label.lower(), f"cpu{numa[label]}", part) for label in labels]
    links += socket_links(cpus)
    return NodeTopology(
        gpus=tuple(gpu_record(label.lower(), int(label[3:]), part) for label in labels),
        cpus=cpus,
        links=tuple(links),
        gpu_peer_access=False if part is not None and not part.p2p else None,
    )
