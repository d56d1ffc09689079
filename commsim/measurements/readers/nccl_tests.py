"""The tables of nccl-tests and rccl-tests, every version, as a terminal or a scheduler keeps them.

    #       size         count      type   redop    root     time   algbw   busbw #wrong    time ...
    #        (B)    (elements)                               (us)  (GB/s)  (GB/s)           (us) ...
         1048576        262144     float     sum      -1    41.22   25.44   44.52      0   40.91 ...

The header says which columns there are: older versions have no root, or no redop; version 1 calls
the size "bytes" and gives the time in ms. Whatever a launcher puts before a line, and the lines of
NCCL_DEBUG between them or within a row, are passed over. What the table does not say is read off
the lines before it: the operation ("all_reduce_perf"; else the file's name; else all_reduce, where
busbw exceeds algbw, as of no other operation) and the ranks (a line for each; else "2 nodes, 16
ranks"; else what the counts of elements or the bandwidths leave as the only possibility).
Two jobs in one file are told apart by the labels of `srun -l` or `mpirun --tag-output`; without
any, what is mixed is refused.
Source: github.com/NVIDIA/nccl-tests, src/common.cu and doc/PERFORMANCE.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from commsim.collectives.collective import DTYPES, ROOTED
from commsim.measurements import log, names
from commsim.measurements.row import Problem, Row, duration_of, number
from commsim.units import Bytes, Seconds

_TYPES = "|".join(sorted(names.TYPES, key=len, reverse=True))
_ROW = re.compile(
    rf"(?<![\d.])(\d{{1,19}})[ \t]{{1,64}}(\d{{1,19}})[ \t]{{1,64}}({_TYPES})[ \t]{{1,64}}(\S.*)"
)
_HEADER = re.compile(r"(?:\b(size)\s+count|\b(bytes)\s+N)\s+type\b(.*)")
_STARTING = re.compile(r"\b(\w{3,30}?)_perf\b")
_RANK = re.compile(r"\bRank\s{1,9}(\d{1,7})\s.{0,80}?\bon\s{1,20}(\S{1,255})\s{1,9}device\b")
_GROUP = re.compile(r"\b(\d{1,7}) node(?:\(s\)|s)?,? (?:and )?(\d{1,7}) ranks\b")
_DEBUG = re.compile(r"[A-Za-z][\w.-]{0,63}:\d+:\d+ \[\d+\] NCCL [A-Z]+.*")
_LABEL = re.compile(r"\s{0,16}(\d{1,7}:|\[[^\[\]\s]{1,80}\](?:<\w{2,6}>)?:?)")
_TOOL = re.compile(r"\b((?:nccl|rccl)-tests)[ :]*[Vv]ersion:? (\S{1,40})")
_FIGURE = re.compile(r"[\d.]+(?:[eE][+-]?\d+)?|N/A|-1")
_NEARLY_2 = 2 - 1e-4  # beyond, no two decimals tell one n from the next
_HALF = ["time", "algbw", "busbw", "#wrong"]
_PLAIN = ["redop", "root", *_HALF, *_HALF]  # where no header is kept


class Layout(NamedTuple):
    """Where the columns behind the type are; a half is in_place and the place of its time."""

    width: int
    redop: int | None
    root: int | None
    halves: tuple[tuple[bool, int], ...]
    unit: float


class Printed(NamedTuple):
    """A row as it stands there."""

    line: int
    size: str
    elements: str
    type: str
    rest: list[str]
    layout: Layout


@dataclass(slots=True)
class Section:
    """One run of one benchmark: what stands above its rows, and the rows."""

    operation: str | None = None
    ranks: int = 0
    hosts: set[str] = field(default_factory=set)
    listed: int = 0
    group: tuple[int, int] | None = None
    tool: tuple[tuple[str, str], ...] = ()
    rows: list[Printed] = field(default_factory=list)
    headed: bool = False
    other: str | None = None  # an operation that began before this one's table did
    mixed: int = 0  # the line at which the tables of both were under way


def recognises(text: str) -> bool:
    return _HEADER.search(text) is not None or _ROW.search(text) is not None


def read(text: str, name: str) -> Iterator[Row | Problem]:
    for stream in _streams(text):
        for section in _sections(stream):
            yield from _rows(section, name)


def _streams(text: str) -> Iterator[Iterable[tuple[int, str]]]:
    """The lines of every job whose table a launcher labelled, with those that have no label."""
    starts = (1 + max(text.rfind(end, 0, m.start()) for end in "\n\r") for m in
              _HEADER.finditer(text))  # fmt: skip
    labels = dict.fromkeys(_label(text[start : start + 100]) for start in starts)
    if len(labels) < 2:
        yield log.lines(text)
        return
    lines = [(_label(line), (i, line)) for i, line in log.lines(text)]
    for label in labels:
        yield [line for own, line in lines if own in (label, "")]


def _label(line: str) -> str:
    found = _LABEL.match(line)
    return found[1] if found else ""


def _sections(lines: Iterable[tuple[int, str]]) -> list[Section]:
    found = [Section()]
    layout, above, cut = _layout("size", _PLAIN, ""), "", None
    for i, line in lines:
        match = _ROW.search(line)
        if match is None and cut is not None:
            cut = _continued(cut, line)
            if len(cut.rest) >= cut.layout.width:
                found[-1].rows.append(cut)
                cut = None
            continue
        if match is not None:
            if cut is not None:
                found[-1].rows.append(cut)
            rest = _DEBUG.sub("", match[4]) if "NCCL" in line else match[4]
            printed = Printed(i, match[1], match[2], match[3], rest.split(), layout)
            cut = None
            if found[-1].other is not None and not found[-1].headed and len(found) > 1:
                found[-1].mixed = found[-1].mixed or i
            if len(printed.rest) >= layout.width:
                found[-1].rows.append(printed)
            else:
                cut = printed
        elif (header := _HEADER.search(line)) is not None:
            layout = _layout(header[1] or header[2], header[3].split(), above)
            if found[-1].headed and found[-1].other is not None and not found[-1].rows:
                found[-1].mixed = i
            found[-1].headed = True
        else:
            _note(line, found)
        above = line
    if cut is not None:
        found[-1].rows.append(cut)
    return found


def _continued(cut: Printed, line: str) -> Printed:
    """A row that lines of NCCL_DEBUG broke, with what this line has of its figures."""
    words = _DEBUG.sub("", line).split() if "NCCL" in line else line.split()
    if words and all(_FIGURE.fullmatch(word) for word in words):
        return cut._replace(rest=[*cut.rest, *words])
    return cut


def _layout(first: str, columns: list[str], above: str) -> Layout:
    times = [i for i, column in enumerate(columns) if column in ("time", "cputime")]
    only_in_place = "in-place" in above and "out-of-place" not in above
    return Layout(
        width=times[-1] + 3 if times else len(columns),
        redop=next((i for i, c in enumerate(columns) if c in ("redop", "op")), None),
        root=columns.index("root") if "root" in columns else None,
        halves=tuple((k > 0 or only_in_place, i) for k, i in enumerate(times[:2])),
        unit=1e-3 if first == "bytes" else 1e-6,
    )


def _note(line: str, sections: list[Section]) -> None:
    """Take from a line that is no row what it says of the rows below it."""
    last = sections[-1]
    if (rank := _RANK.search(line)) is not None:
        if last.rows:
            last = _next(sections)
        last.ranks = max(last.ranks, int(rank[1]) + 1)
        last.listed += 1
        last.hosts.add(rank[2])
    elif "NCCL INFO" in line:
        return
    elif (program := _STARTING.search(line)) is not None:
        if "concluded" not in line:
            before, begun = last.operation, bool(last.rows)
            if begun:
                last = _next(sections)
                before = before if sections[-2].headed else None
            if before not in (None, program[1]):
                last.other = before
            last.operation = program[1]
    elif "nThread " in line and last.rows:
        _next(sections)
    elif (group := _GROUP.search(line)) is not None:
        if last.rows:
            last = _next(sections)
        last.group = (int(group[1]), int(group[2]))
    elif (version := log.VERSION.search(line)) is not None:
        library = "nccl" if version[1] == "N" else "rccl"
        last.tool += (("library", library), ("library_version", version[2]))
    elif (tool := _TOOL.search(line)) is not None:
        last.tool += (("tool", f"{tool[1]} {tool[2]}"),)


def _next(sections: list[Section]) -> Section:
    sections.append(Section(tool=sections[-1].tool))
    return sections[-1]


def _rows(section: Section, name: str) -> Iterator[Row | Problem]:
    if not section.rows:
        return
    first = section.rows[0].line
    if section.mixed:
        yield Problem(
            section.mixed,
            f"expected one benchmark after the other, got {section.other} and {section.operation} "
            "mixed; give each a file, or labels (srun -l, mpirun --tag-output)",
        )
        return
    try:
        operation = _operation(section, name)
    except ValueError as error:
        yield Problem(first, f"expected {error}")
        return
    n_ranks, nodes = _group(section, operation)
    for printed in section.rows:
        try:
            yield from _figures(printed, operation, n_ranks, nodes, section.tool)
        except ValueError as error:
            yield Problem(printed.line, f"expected {error}")


def _figures(
    printed: Printed,
    operation: str,
    n_ranks: int | None,
    nodes: int | None,
    source: tuple[tuple[str, str], ...],
) -> Iterator[Row]:
    line, size, _, kind, rest, layout = printed
    nbytes, dtype = int(size), names.dtype(kind)
    reduce_op, root = "sum", None
    if layout.redop is not None and layout.redop < len(rest):
        reduce_op = names.reduce_op(rest[layout.redop])
    if layout.root is not None and operation in ROOTED and layout.root < len(rest):
        root = int(rest[layout.root]) if rest[layout.root].isdecimal() else None
    for in_place, at in layout.halves:
        figures = rest[at : at + 4]
        if len(figures) < 3:  # the log ends within the row
            return
        duration, of = (number(figures[0]) or 0.0) * layout.unit, "time"
        if not duration:
            duration, of = _from_bandwidths(figures, operation, nbytes, n_ranks)
        if not duration:
            continue
        wrong = int(figures[3]) if figures[3:] and figures[3].isdecimal() else None
        yield Row(
            line, duration, operation, nbytes, n_ranks, nodes, dtype, reduce_op, root, False,
            in_place, wrong, source if of == "time" else (*source, ("duration_from", of)),
        )  # fmt: skip


def _from_bandwidths(
    figures: list[str], operation: str, nbytes: Bytes, n_ranks: int | None
) -> tuple[Seconds, str]:
    algorithm, bus = ((number(figure) or 0.0) * 1e9 for figure in figures[1:3])
    return duration_of(algorithm, bus, operation, nbytes, n_ranks)


def _operation(section: Section, name: str) -> str:
    if section.operation is not None:
        return names.operation(section.operation)
    if (found := names.operation_in(name)) is not None:
        return found
    if (most := _most_precise(section)) is not None and most[1] > 1.05 * most[0]:
        return "all_reduce"
    raise ValueError(
        'the operation, as in "all_reduce_perf" above the table or in the name of the file, '
        "got neither"
    )


def _group(section: Section, operation: str) -> tuple[int | None, int | None]:
    """How many ranks, on how many nodes; None where that cannot be told."""
    if section.ranks:
        whole = section.listed == section.ranks  # none left out of the list
        return section.ranks, len(section.hosts) if whole else None
    if section.group is not None:
        return section.group[1], section.group[0]
    if operation == "all_reduce":
        return _only_fit(section), None
    largest = max(section.rows, key=lambda printed: int(printed.size))
    part = int(largest.elements) * DTYPES[names.dtype(largest.type)]
    if operation in ("all_gather", "reduce_scatter", "all_to_all") and part:
        n, left = divmod(int(largest.size), part)
        return (n if n > 1 and left == 0 else None), None
    return None, None


def _most_precise(section: Section) -> tuple[float, float] | None:
    """algbw and busbw, GB/s, of the row where they have most digits."""
    found = []
    for printed in section.rows:
        for _, at in printed.layout.halves:
            try:
                pair = [number(word) or 0.0 for word in printed.rest[at + 1 : at + 3]]
            except ValueError:
                continue
            if len(pair) == 2 and min(pair) > 0:
                found.append((pair[0], pair[1]))
    return max(found, default=None)


def _only_fit(section: Section) -> int | None:
    """The n whose 2 (n - 1) / n the printed bandwidths allow, if no other n is possible."""
    most = _most_precise(section)
    if most is None:
        return None
    low = (most[1] - 0.005) / (most[0] + 0.005)
    high = (most[1] + 0.005) / max(most[0] - 0.005, 1e-9)
    if not 0.9 < low <= high < _NEARLY_2:
        return None
    fits = [n for n in range(2, int(2 / (2 - high)) + 2) if low <= 2 * (n - 1) / n <= high]
    return fits[0] if len(fits) == 1 else None
