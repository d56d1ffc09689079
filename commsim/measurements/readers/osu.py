"""The latency tables of the OSU micro-benchmarks: collectives, and osu_latency between two ranks.

    # OSU MPI-CUDA Allreduce Latency Test v7.4
    # Size       Avg Latency(us)
    8                       6.83

Their size is what one rank sends to one other: for all_gather, all_to_all, gather and scatter
commsim's size (nccl-tests') is that times the ranks. The number of ranks is not printed: it comes
from the launcher's command line, if that was kept, or from the cluster.
Source: mvapich.cse.ohio-state.edu/benchmarks, c/mpi/collective.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from commsim.measurements import log, names
from commsim.measurements.row import Problem, Row, number

_TITLE = re.compile(r"# ?OSU (\S{1,40}) (?:Non-blocking )?([A-Za-z_ -]{0,40}?) ?Latency Test")
_HEADER = re.compile(r"# ?(?:Size\s+)?(?:Avg )?Latency ?\(us\)")
_ROW = re.compile(
    r"(?:^|[\s:>])(?P<size>\d{1,19})[ \t]{1,64}(?P<time>[\d.]{1,30})(?:[ \t]+[\d.]{1,30}){0,4}\s*$"
)
_ALONE = re.compile(
    r"(?:^|[\s:>])(?P<size>)(?P<time>\d{1,15}\.\d{1,9})(?:[ \t]+[\d.]{1,30}){0,3}\s*$"
)
_PER_PAIR = frozenset({"all_gather", "all_to_all", "gather", "scatter"})
_TYPES = {"MPI_CHAR": "int8", "MPI_INT": "int32", "MPI_FLOAT": "float32", "MPI_DOUBLE": "float64"}
_TYPE = re.compile(r"Datatype: (MPI_\w{1,20})")


def recognises(text: str) -> bool:
    return _TITLE.search(text) is not None


def read(text: str, name: str) -> Iterator[Row | Problem]:
    started = log.processes(text)
    operation, n_ranks, dtype, table = "", started, "float32", False
    source: tuple[tuple[str, str], ...] = ()
    for i, line in log.lines(text):
        if (title := _TITLE.search(line)) is not None:
            table, between = False, not title[2].strip()
            try:
                operation = "send_recv" if between else names.operation(title[2])
            except ValueError as error:
                operation = ""
                yield Problem(i, f"expected {error}")
            n_ranks = 2 if between else started
            source = (("library", "mpi"), ("tool", f"OSU {title[1]}"))
        elif (kind := _TYPE.search(line)) is not None:
            dtype = _TYPES.get(kind[1], "float32")
        elif operation and _HEADER.search(line) is not None:
            table = True
        elif table and (row := (_ALONE if operation == "barrier" else _ROW).search(line)):
            try:
                time = number(row["time"])
            except ValueError as error:
                yield Problem(i, f"expected {error}")
                continue
            if time:
                yield Row(
                    i, time * 1e-6, operation, int(row["size"] or 0), n_ranks, dtype=dtype,
                    root=0 if operation == "send_recv" else None, source=source,
                    per_rank=operation in _PER_PAIR,
                )  # fmt: skip
