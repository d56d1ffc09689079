"""Timelines: a lane for each rank and channel, each stage and stream, or each rank and stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from commsim.engine.played import Played
from commsim.engine.timeline import Timeline
from commsim.report.plots.style import (
    TIME_LABEL,
    WIDTH,
    Chart,
    colour,
    data,
    heading,
)
from commsim.traces.recording import COMMUNICATION, COMPUTE, COPY
from commsim.traces.replay import Replay
from commsim.units import Seconds, format_time
from commsim.workload.simulated_step import StepTimeline

RANKS, LANES = 16, 48
"""Ranks, and lanes in all, that one picture shows."""
FINEST = 1 / 1500
"""Share of the whole time below which two neighbouring bars of a kind are drawn as one."""
BARS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bar:
    row: str
    lane: str
    kind: str
    name: str
    begin: Seconds
    end: Seconds
    count: int = 1


def timeline(found: Timeline) -> Chart:
    """Every transfer from the first byte that leaves to the last one, by sending rank and channel.
    Of many ranks and channels the first are shown; the subtitle says how many."""
    found = found.whole
    senders = dict.fromkeys(
        each.ranks[v]
        for each in found.played
        for v in np.unique(each.laid.schedule.source[_moves(each)]).tolist()
        if v < each.n
    )
    channels = np.unique(np.concatenate([p.laid.schedule.channel for p in found.played])).tolist()
    ranks = list(islice(senders, RANKS))
    shown = channels[: max(1, LANES // max(1, len(ranks)))]
    bars = [b for i in range(len(found.played)) for b in _transfers(found, i, ranks, shown)]
    first = found.played[0]
    told = [f"lanes: channels {shown[0]} to {shown[-1]} of {len(channels)}" if len(channels) > 1
            else "one channel"]  # fmt: skip
    if first.multiplicity > 1:
        told.append(f"a bar stands for {first.multiplicity} equal ones")
    if len(ranks) < len(senders):
        told.append(f"the first {len(ranks)} of {len(senders)} ranks that send")
    title = f"{first.collective.operation}, {first.n} ranks: {first.algorithm} {first.protocol}"
    end = max(float(np.nanmax(p.times.arrived, initial=p.asked)) for p in found.played)
    return _gantt(bars, end, title, "; ".join(told), "channel")


def _moves(each: Played) -> NDArray[np.bool_]:
    """Per op, whether it sends to another vertex and its last byte left."""
    schedule = each.laid.schedule
    found: NDArray[np.bool_] = schedule.source != schedule.destination
    return found & ~np.isnan(each.times.sent)


def _transfers(
    found: Timeline, number: int, ranks: Sequence[int], channels: Sequence[int]
) -> Iterator[_Bar]:
    """The transfers of one collective from these ranks on these channels that took place."""
    each = found.played[number]
    schedule, times = each.laid.schedule, each.times
    positions = [p for p, rank in enumerate(each.ranks) if rank in set(ranks)]
    wanted = np.isin(schedule.source, positions) & np.isin(schedule.channel, channels)
    wanted &= _moves(each)
    for i in np.flatnonzero(wanted).tolist():
        source, to = each.name_of(schedule.source[i]), each.name_of(schedule.destination[i])
        kind = "sends, reduced there" if schedule.reduces[i] else "sends"
        if len(found.played) > 1:
            kind = f"{number + 1}. {each.collective.operation}"
        yield _Bar(
            row=f"rank {source}", lane=str(schedule.channel[i]), kind=kind,
            name=f"{source} to {to}, round {schedule.round[i]}",
            begin=float(times.begun[i]), end=float(times.sent[i]),
        )  # fmt: skip


def step_timeline(found: StepTimeline) -> Chart:
    """Every task of a played training step by pipeline stage and stream."""
    bars = (
        _Bar(
            row=f"stage {s.stage}", lane=s.stream, kind=s.kind,
            name=s.name if s.micro_batch < 0 else f"{s.name}, micro-batch {s.micro_batch}",
            begin=s.start, end=s.end,
        )
        for s in found.spans
    )  # fmt: skip
    p = found.predicted
    left_out = found.micro_batches_left_out
    note = f"a rank of each stage; {found.tasks:,} tasks"
    if left_out:
        note += f"; {left_out} micro-batches like the others are left out"
    title = f"One step of {p.model.name} on {p.layout.world} x {p.cluster.gpu.name}, played"
    return _gantt(bars, found.played, title, note, "stream")


def replay_timeline(found: Replay) -> Chart:
    """Every task of a replayed step by rank and stream; of many ranks the first."""
    ranks = list(islice(found.parts, RANKS))
    bars = []
    for i, (rank, _) in enumerate(found.places):
        part = found.part(i)
        if part is not None and part.kind in (COMPUTE, COPY, COMMUNICATION) and rank in ranks:
            bars.append(
                _Bar(
                    row=f"rank {rank}", lane=part.stream, kind=part.kind, name=part.name,
                    begin=float(found.spans.starts[i]), end=float(found.spans.ends[i]),
                )
            )  # fmt: skip
    cluster = found.where.cluster
    where = "as measured" if cluster is None else f"on {cluster.name}"
    note = f"the first {len(ranks)} of {found.world} ranks" if found.world > len(ranks) else ""
    return _gantt(bars, found.duration, f"The recorded step, {where}", note, "stream")


def _merged(bars: Iterable[_Bar], whole: Seconds) -> Iterator[_Bar]:
    """Bars of one lane and kind so near to each other that no eye would part them, as one."""
    near = whole * FINEST
    held: dict[tuple[str, str], _Bar] = {}
    for bar in sorted(bars, key=lambda b: b.begin):
        key = bar.row, bar.lane
        last = held.get(key)
        if last and last.kind == bar.kind and bar.begin - last.end < near and (
            bar.end - bar.begin < 3 * near
        ):  # fmt: skip
            held[key] = replace(last, end=max(last.end, bar.end), count=last.count + 1)
            continue
        if last:
            yield last
        held[key] = bar
    yield from held.values()


def _gantt(
    bars: Iterable[_Bar], whole: Seconds, title: str, note: str, lane_word: str
) -> Chart:  # fmt: skip
    merged = list(_merged(bars, whole))
    if len(merged) > BARS:
        merged = merged[:BARS]
        note += f"; the first {BARS:,} bars"
    lanes = list(dict.fromkeys((b.row, b.lane) for b in merged))
    rows = sorted(dict.fromkeys(row for row, _ in lanes), key=_natural)
    order = sorted({lane for _, lane in lanes}, key=_natural)
    values: list[dict[str, Any]] = [
        {
            "row": b.row, "lane": b.lane, "kind": b.kind, "begin": b.begin, "end": b.end,
            "what": b.name if b.count == 1 else f"{b.count} of them",
            "text": f"{format_time(b.begin)} to {format_time(b.end)}",
        }
        for b in merged
    ]  # fmt: skip
    if lane_word == "stream":
        note = "; ".join(filter(None, (note, f"lanes from above: {', '.join(order)}")))
    each = max(5, min(16, 620 // max(1, len(rows) * len(order))))
    kinds = sorted({b.kind for b in merged})
    return (
        alt.Chart(data(values))
        .mark_bar(aria=False)
        .encode(
            x=alt.X("begin:Q").scale(nice=False, domain=[0, whole]).axis(
                title="time from the start", labelExpr=TIME_LABEL, tickCount=8
            ),
            x2="end:Q",
            y=alt.Y("row:N").sort(rows).axis(title=None, grid=True, tickBand="extent"),
            yOffset=alt.YOffset("lane:N").sort(order),
            color=colour("kind", kinds, orient="top"),
            tooltip=[
                "row:N", alt.Tooltip("lane:N", title=lane_word), "kind:N", "what:N",
                alt.Tooltip("text:N", title="time"),
            ],
        )
        .properties(
            width=2 * WIDTH, height=max(60, each * len(rows) * len(order)),
            title=heading(title, note),
        )
        .interactive(bind_y=False)
    )  # fmt: skip


def _natural(name: str) -> tuple[int, str]:
    digits = "".join(c for c in name if c.isdigit())
    return (int(digits) if digits else -1, name)
