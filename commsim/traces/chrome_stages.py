"""A played training step as a Chrome trace, which https://ui.perfetto.dev opens.

A process per pipeline stage, named by the rank that stands for all of its ranks; a row per stream:
compute, the communicators, the links to other stages. A task says of which micro-batch it is, and
what it takes alone where sharing made it longer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from commsim.traces.chrome import Event, naming, to_ns, to_us, write_events
from commsim.workload.layouts.groups import groups
from commsim.workload.simulated_step import StepTimeline
from commsim.workload.tasks.program import LINKS
from commsim.workload.tasks.works import STREAMS

MOST = 300_000  # tasks: what a browser still handles
TITLES = {
    "compute": "compute", "tp": "tensor parallel", "cp": "context parallel",
    "ep": "experts", "dp": "data parallel", "replicas": "data parallel, replicas",
}  # fmt: skip


def write(timeline: StepTimeline, path: str | os.PathLike[str], most: int = MOST) -> None:
    """Write the trace, an event per line; see `events`."""
    write_events(events(timeline, most), path)


def events(timeline: StepTimeline, most: int = MOST) -> Iterator[Event]:
    """The events of a trace, times in us, in whole ns.

    Of more than `most` tasks the earliest are kept, and the first event says so.
    """
    spans = list(timeline.spans)
    total = len(spans)
    spans = sorted(spans, key=lambda span: span.start)[:most]
    notes = []
    if total > most:
        notes.append(f"only the first {most} of {total} tasks are shown")
    if timeline.micro_batches_left_out:
        notes.append(f"{timeline.micro_batches_left_out} micro-batches as the others are left out")
    for note in notes:
        yield {"ph": "i", "s": "g", "pid": 0, "tid": 0, "ts": 0.0, "name": note}
    ranks = groups(timeline.predicted.layout).ranks("pp")
    streams = (*STREAMS, *LINKS)
    rows = {(span.stage, streams.index(span.stream)) for span in spans}
    for stage, rank in enumerate(ranks):
        yield from naming(stage + 1, 0, "process", f"stage {stage} (rank {rank})")
        for thread in sorted(row for at, row in rows if at == stage):
            name = streams[thread]
            yield from naming(stage + 1, thread + 1, "thread", TITLES.get(name, name))
    for span in spans:
        args: dict[str, object] = {"kind": span.kind}
        if span.micro_batch >= 0:
            args["micro_batch"] = span.micro_batch
        begin, end = to_ns(span.start), to_ns(span.end)
        if end - begin > to_ns(span.alone) + 1:
            args["alone_us"] = to_us(to_ns(span.alone))
        yield {
            "ph": "X", "pid": span.stage + 1, "tid": streams.index(span.stream) + 1,
            "ts": to_us(begin), "dur": to_us(end - begin), "name": span.name, "args": args,
        }  # fmt: skip
