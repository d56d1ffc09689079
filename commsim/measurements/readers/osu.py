"""The tables of the OSU micro-benchmarks: latencies and bandwidths between two ranks, collectives;
OMB-Py's and mpi4py's are alike.

    # OSU MPI-CUDA Allreduce Latency Test v7.4
    # Size       Avg Latency(us)
    8                       6.83

Their size is what one rank sends to one other: for all_gather, all_to_all, gather and scatter
commsim's size (nccl-tests') is that times the ranks. The number of ranks is not printed: it comes
from the launcher's command line, if that was kept, or from the cluster.

* Non-blocking collectives: the time of the operation without the computation (`Pure Comm.`).
* `osu_bw`, `osu_bibw`: MB/s (10^6) of messages sent 64 at a time, so their latencies hide behind
  one another: a message's time is its bytes over that rate only where bytes are nearly all of it.
  Only sizes from BULK are read. One way it is send_recv to a rank; both ways, each rank sends to
  the other at once and the rate is the sum of both.

Source: mvapich.cse.ohio-state.edu/benchmarks, c/mpi/pt2pt and c/mpi/collective.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from commsim.measurements import log, names
from commsim.measurements.row import Problem, Row, number

BULK = 1 << 20
"""Bytes from which a message of a window is told by its rate: at 50 GB/s they take 21 us, some ten
times what a message alone waits for its first byte."""
_TITLE = re.compile(
    r"# ?(?:OSU |OMB-Py |OMB Python |(?=MPI ))(?P<tool>\S{1,40}) "
    r"(?:(?P<collective>[A-Za-z_ -]{0,60}?) ?Latency"
    r"|(?P<both>Bi-Directional )?Bandwidth) Test"
)
_HEADER = re.compile(r"# ?.{0,200}?(?:[(\[](?:us|MB/s)[)\]])")
_CELLS = re.compile(r"\s{2,}|\t|(?<=[)\]])\s|(?<=Size)\s(?![(\[])")
_NUMBER = re.compile(r"\d[\d.]{0,29}$")
_TYPES = {"MPI_CHAR": "int8", "MPI_INT": "int32", "MPI_FLOAT": "float32", "MPI_DOUBLE": "float64"}
_TYPE = re.compile(r"Datatype: (MPI_\w{1,20})")
_PER_PAIR = frozenset({"all_gather", "all_to_all", "gather", "scatter"})
_WANTED = ("purecomm", "avglatency", "latency", "bandwidth")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """What a title says: `rate` is 0 for times, else in how many directions data goes at once."""

    operation: str
    n_ranks: int | None
    root: int | None
    source: tuple[tuple[str, str], ...]
    rate: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """Where the figure stands in a row of so many; sized: whether a size stands first."""

    place: int
    sized: bool


def recognises(text: str) -> bool:
    return _TITLE.search(text) is not None


def read(text: str, name: str) -> Iterator[Row | Problem]:
    started = log.processes(text)
    table: _Table | None = None
    columns: _Columns | None = None
    dtype, small, read_any = "float32", 0, False
    for i, line in log.lines(text):
        if (title := _TITLE.search(line)) is not None:
            columns = None
            try:
                table = _table(title, started)
            except ValueError as error:
                table = None
                yield Problem(i, f"expected {error}")
        elif (kind := _TYPE.search(line)) is not None:
            dtype = _TYPES.get(kind[1], "float32")
        elif table and (header := _HEADER.search(line)):
            columns = _columns(line[header.start() :])
        elif table and columns and (cells := _row(line, columns)):
            size = int(cells[0]) if columns.sized else 0
            try:
                figure = number(cells[columns.place])
            except ValueError as error:
                yield Problem(i, f"expected {error}")
                continue
            if table.rate and size < BULK:
                small = small or i
            elif figure:
                read_any = True
                yield _figure(i, table, size, figure, dtype)
    if small and not read_any:
        yield Problem(
            small,
            "expected a bandwidth of messages of 1 MiB or more (that of smaller ones, sent 64 at "
            "a time, tells no time; run osu_latency), got smaller ones only",
        )


def _table(title: re.Match[str], started: int | None) -> _Table:
    """Raises ValueError for an operation that commsim does not have."""
    tool = title["tool"]
    library = next((known for known in ("nccl", "rccl") if known in tool.lower()), "mpi")
    source = (("library", library), ("tool", f"OSU {tool}"))
    if title["collective"] is None:
        ways = 2 if title["both"] else 1
        return _Table(
            operation="send_recv", n_ranks=2, root=None if ways == 2 else 0, rate=ways,
            source=(*source, ("duration_from", "bandwidth of a window of messages")),
        )  # fmt: skip
    what = re.sub(r"^Non-[Bb]locking\s*", "", title["collective"]).strip()
    if not what:
        return _Table(operation="send_recv", n_ranks=2, root=0, source=source)
    operation = names.operation(what)
    return _Table(operation=operation, n_ranks=started, root=None, source=source)


def _columns(header: str) -> _Columns | None:
    """Where the table has its time or its rate, in the order of _WANTED; None where nowhere."""
    cells = _CELLS.split(header.lstrip("# \t").rstrip())
    plain = [re.sub(r"[^a-z]", "", re.split(r"[(\[]", cell)[0].lower()) for cell in cells]
    place = next((plain.index(w) for w in _WANTED if w in plain), None)
    return None if place is None else _Columns(place=place, sized=plain[0] == "size")


def _row(line: str, columns: _Columns) -> list[str] | None:
    """The numbers at the end of a line, behind any prefix; None where they are too few."""
    cells: list[str] = []
    for word in reversed(line.replace(">", " ").split()):
        if not _NUMBER.match(word):
            break
        cells.insert(0, word)
    if columns.sized and (not cells or not cells[0].isdecimal() or len(cells[0]) > 19):
        return None
    return cells if len(cells) > columns.place else None


def _figure(line: int, table: _Table, size: int, figure: float, dtype: str) -> Row:
    duration = table.rate * size / (figure * 1e6) if table.rate else figure * 1e-6
    return Row(
        line, duration, table.operation, size, table.n_ranks, dtype=dtype, root=table.root,
        source=table.source, per_rank=table.operation in _PER_PAIR,
    )  # fmt: skip
