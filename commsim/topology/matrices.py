"""The tables of `nvidia-smi topo`, as text: which cell stands where, and what is wrong with them.

What the columns look like differs by driver: NICs are NIC0 with a legend or mlx5_0 by name, NUMA
columns come and go and may be glued together, headers carry escape codes, tables stand among other
text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from commsim.errors import SpecError

PEER = ("OK", "CNS", "GNS", "TNS", "NS", "DR", "U")
EXPECTED = "X, NV1 and up, PIX, PXB, PHB, NODE or SYS (of -p2p: OK, CNS, GNS, TNS, NS, DR or U)"

# Pasted text often keeps "[4m" and loses the escape character before it.
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\[[0-9;]{1,5}m")
_CELL = re.compile(r"NV[0-9]{1,4}|PIX|PXB|PHB|NODE|SYS|SOC|X|OK|CNS|GNS|TNS|NS|DR|U")
_AFFINITY = re.compile(r"CPU Affinity|NUMA Affinity|GPU NUMA ID")
_DEVICE = re.compile(r"[A-Za-z][\w.:-]*")
GPU_LABEL = re.compile(r"GPU([0-9]{1,4})")
_GLUED = re.compile(r"(?<=[0-9])(?=GPU[0-9]|NIC[0-9]|mlx[0-9]_)")
_LEGEND = re.compile(r"\s*(NIC[0-9]{1,4}):\s*(\S+)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """One table: labels in column order, cells by (row, column), the line number of each row.

    peer: does it tell what the driver allows (-p2p), not how devices are joined?
    """

    labels: tuple[str, ...]
    cells: dict[tuple[str, str], str]
    lines: dict[str, int]
    affinity: dict[str, tuple[str, ...]]
    peer: bool
    counted: bool


def read_matrices(text: str, where: str) -> list[Matrix]:
    """All tables of the text, at least one; SpecError naming line and cell."""
    lines = [_ESCAPE.sub("", line) for line in text.splitlines()]
    found: list[Matrix] = []
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
    if not GPU_LABEL.fullmatch(labels[0]):
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
) -> tuple[Matrix, int]:
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
        labels = tuple(row for row in rows if GPU_LABEL.fullmatch(row))
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
        Matrix(
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
        elif cell.startswith("NV") and not (
            GPU_LABEL.fullmatch(row) and GPU_LABEL.fullmatch(column)
        ):
            problems.append(f"{place}: found {cell!r}, expected NVLink between GPUs only")
        elif not peer and cell != mirror and labels.index(row) < labels.index(column):
            problems.append(
                f"{place}: found {cell!r}, but row {column}, column {row} says {mirror!r}; "
                "expected the same in both"
            )
    return problems


def read_legend(text: str) -> dict[str, str]:
    """The names that the NIC legend gives: NIC0 -> mlx5_0."""
    matches = (_LEGEND.fullmatch(_ESCAPE.sub("", line)) for line in text.splitlines())
    return {match[1]: match[2] for match in matches if match}
