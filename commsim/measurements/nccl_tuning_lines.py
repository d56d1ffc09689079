"""Messages of an NCCL log about tuning: the table of algorithms, thresholds, what was chosen."""

from __future__ import annotations

import re
from collections.abc import Iterator

from commsim.measurements import nccl_facts as facts
from commsim.measurements.nccl_facts import Fact
from commsim.measurements.nccl_messages import Message
from commsim.measurements.nccl_names import OPERATIONS, PROTOCOLS, algorithm, protocol
from commsim.measurements.nccl_reader import REAL, State, at, reads


@reads(r"\s*(Algorithm|Protocol|Max NThreads|Latency/AlgBw)\s*\|(.{1,4000})")
def table_head(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    cells = [cell.strip() for cell in m[2].rstrip().rstrip("|").split("|")]
    if m[1] == "Algorithm":
        state.algorithms[line.thread] = [algorithm(cell) for cell in cells]
        state.threads.pop(line.thread, None)
    elif m[1] == "Protocol":
        # The last block names protocols for algorithms that it does not have.
        above = (a for a in state.algorithms.get(line.thread, []) for _ in PROTOCOLS)
        state.columns[line.thread] = [
            (a, protocol(cell)) for a, cell in zip(above, cells, strict=False)
        ]
    elif m[1] == "Max NThreads":
        state.threads[line.thread] = [int(c) if c.isdecimal() and len(c) < 9 else 0 for c in cells]
    else:
        pairs = [cell.partition("/") for cell in cells]
        state.columns[line.thread] = [(algorithm(a), protocol(p)) for a, _, p in pairs]
        state.threads.pop(line.thread, None)
    yield from ()


_ENTRY = re.compile(rf"\s*{REAL}/\s*{REAL}\s*$")


@reads(r"\s*(Broadcast|Reduce|AllGather|ReduceScatter|AllReduce)\s*\|(.{1,4000})")
def table_row(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    threads = state.threads.get(line.thread, [])
    columns = state.columns.get(line.thread, [])
    for i, (cell, (a, p)) in enumerate(zip(m[2].split("|"), columns, strict=False)):
        if entry := _ENTRY.match(cell):
            yield at(
                line, facts.TuningEntry, operation=OPERATIONS[m[1]], algorithm=a, protocol=p,
                latency=float(entry[1]) * 1e-6, bandwidth=float(entry[2]) * 1e9,
                threads=threads[i] if i < len(threads) else None,
            )  # fmt: skip


@reads(r"threadThresholds ([\d/| ]{1,400})")
def thresholds(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    rows = [
        [int(n[:9]) for n in row.split("/") if n.strip().isdecimal()] for row in m[1].split("|")
    ]
    yield at(line, facts.ThreadThresholds, thresholds=tuple(tuple(row) for row in rows if row))


@reads(
    r"(?:(\w{1,40}): )?(\d{1,18}) Bytes -> Algo (\w{1,30}) proto (\w{1,20})"
    rf"(?: time {REAL})?(?: channel\{{Lo\.\.Hi\}}=\{{(\d{{1,4}})\.\.(\d{{1,4}})\}})?"
)
def chosen(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    yield at(
        line, facts.Chosen, operation=OPERATIONS.get(m[1], m[1] or ""), nbytes=int(m[2]),
        algorithm=algorithm(m[3]), protocol=protocol(m[4]),
        channels=(int(m[6]), int(m[7])) if m[6] else None,
        duration=float(m[5]) * 1e-6 if m[5] else None,
    )  # fmt: skip
