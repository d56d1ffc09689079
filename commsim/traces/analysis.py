"""What a recorded and a replayed step say: operations, overlap, the critical path."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commsim.traces.line import PAUSE
from commsim.traces.recording import COMMUNICATION, COMPUTE, COPY, WAIT, Recording
from commsim.traces.replay import Priced, Replay
from commsim.units import Bytes, Seconds

HOST = "host and launches"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Operations of one kind. measured: s from start to end, the median. waiting: s for other
    ranks, the mean over ranks and operations; transfer: s, the median; None where one rank's
    recording cannot tell. predicted: s, of the transfer."""

    operation: str
    nbytes: Bytes | None
    dtype: str
    ranks: int
    count: int
    measured: Seconds
    waiting: Seconds | None
    transfer: Seconds | None
    predicted: Seconds | None = None
    algorithm: str = ""

    @property
    def ratio(self) -> float | None:
        """Predicted over measured: over the transfer where that is known."""
        base = self.measured if self.transfer is None else self.transfer
        if self.predicted is None or not base > 0:
            return None
        return self.predicted / base

    def to_dict(self) -> dict[str, Any]:
        """Plain figures."""
        return {
            "operation": self.operation, "size_bytes": self.nbytes, "dtype": self.dtype,
            "n_ranks": self.ranks, "count": self.count, "measured_s": self.measured,
            "waiting_s": self.waiting, "transfer_s": self.transfer, "predicted_s": self.predicted,
            "predicted_over_measured": self.ratio, "algorithm": self.algorithm,
        }  # fmt: skip


def table(priced: Iterable[Priced]) -> list[Row]:
    """Operations by kind, what takes longest first."""
    kinds: dict[tuple[object, ...], list[Priced]] = defaultdict(list)
    for p in priced:
        name = "send_recv" if p.call.is_message else p.call.operation
        kinds[name, p.call.nbytes, p.call.dtype, len(p.ranks)].append(p)
    rows = list(map(_row, kinds.values()))
    return sorted(rows, key=lambda r: -r.count * (_known(r.measured) or r.predicted or 0.0))


def _row(found: list[Priced]) -> Row:
    call = found[0].call
    recorded = [p.operation for p in found if p.operation is not None]
    predicted = [p.prediction for p in found if p.prediction is not None]
    measured = [m for op in recorded if not math.isnan(m := op.measured)]
    joined = [
        op for op in recorded
        if op.timed and len(op.starts) > 1 and not any(map(math.isnan, op.ends.values()))
    ]  # fmt: skip
    waiting = [op.waiting(r) for op in joined for r in op.starts]
    transfers = [t for op in joined if (t := op.transfer) is not None]
    algorithms = dict.fromkeys(f"{p.algorithm} {p.protocol}".strip() for p in predicted)
    return Row(
        operation="send_recv" if call.is_message else call.operation, nbytes=call.nbytes,
        dtype=call.dtype, ranks=len(found[0].ranks), count=len(found),
        measured=median(measured) if measured else math.nan,
        waiting=fmean(waiting) if waiting else None,
        transfer=median(transfers) if transfers else None,
        predicted=median(p.duration for p in predicted) if predicted else None,
        algorithm=", ".join(algorithms),
    )  # fmt: skip


def _known(value: Seconds) -> Seconds | None:
    return None if math.isnan(value) else value


# ---- overlap ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A rank's time, s. computing and communicating: at least one stream does. exposed: of the
    communication what no computing hides."""

    rank: int
    duration: Seconds
    computing: Seconds
    communicating: Seconds
    exposed: Seconds

    @property
    def hidden(self) -> float:
        """Share of the communication that computing hides."""
        return 1 - self.exposed / self.communicating if self.communicating else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain figures."""
        return {
            "rank": self.rank, "duration_s": self.duration, "computing_s": self.computing,
            "communicating_s": self.communicating, "exposed_s": self.exposed,
            "hidden_share": self.hidden,
        }  # fmt: skip


Stretch = tuple[str, Seconds, Seconds]  # kind, start, end


def recorded_overlap(recording: Recording) -> Overlap:
    """A rank's overlap as it was recorded."""
    found = [(e.kind, e.start, e.end) for e in recording.events if not math.isnan(e.end)]
    return _overlap(recording.rank, recording.duration, found)


def played_overlap(replay: Replay) -> list[Overlap]:
    """Each rank's overlap as it was played."""
    found: dict[int, list[Stretch]] = {rank: [] for rank in replay.parts}
    begins: dict[int, Seconds] = {}
    ends: dict[int, Seconds] = dict.fromkeys(replay.parts, 0.0)
    starts, over = replay.spans.starts.tolist(), replay.spans.ends.tolist()
    arrived: dict[tuple[int, str], Seconds] = {}
    for i, (rank, _) in enumerate(replay.places):
        part = replay.part(i)
        if part is None:
            if rank in found:
                begins[rank] = over[i]
            continue
        ends[rank] = max(ends[rank], over[i])
        if part.kind == PAUSE:
            arrived[rank, part.stream] = over[i]
        elif part.kind == COMMUNICATION:
            begin = arrived.get((rank, part.stream), starts[i])  # waiting for others included
            found[rank].append((part.kind, min(begin, starts[i]), over[i]))
        else:
            found[rank].append((part.kind, starts[i], over[i]))
    return [_overlap(r, ends[r] - begins.get(r, 0.0), found[r]) for r in sorted(found)]


def _overlap(rank: int, duration: Seconds, stretches: Sequence[Stretch]) -> Overlap:
    computing = _union((s, e) for kind, s, e in stretches if kind in (COMPUTE, COPY))
    communicating = _union((s, e) for kind, s, e in stretches if kind == COMMUNICATION)
    either = _union((s, e) for kind, s, e in stretches if kind in (COMPUTE, COPY, COMMUNICATION))
    both = _length(computing) + _length(communicating) - _length(either)
    total = _length(communicating)
    return Overlap(
        rank=rank, duration=duration, computing=_length(computing), communicating=total,
        exposed=max(0.0, total - both),
    )  # fmt: skip


def _union(stretches: Iterable[tuple[Seconds, Seconds]]) -> NDArray[np.float64]:
    """Stretches that do not overlap, covering the same time."""
    found = np.array(sorted(stretches), dtype=np.float64).reshape(-1, 2)
    if not len(found):
        return found
    over = np.maximum.accumulate(found[:, 1])
    new = np.concatenate([[True], found[1:, 0] > over[:-1]])
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(found)) - 1
    return np.column_stack([found[first, 0], over[last]])


def _length(stretches: NDArray[np.float64]) -> Seconds:
    return float((stretches[:, 1] - stretches[:, 0]).sum())


# ---- the critical path ----


def critical_path(replay: Replay) -> dict[str, Seconds]:
    """By what it does, s of the chain of tasks on which the end of the step hung; sums to the
    duration. From the last task back to what it waited for the longest."""
    spans = replay.spans
    before: list[int | None] = []
    last: dict[str, int] = {}
    for i, task in enumerate(spans.tasks):
        before.append(last.get(task.stream))
        last[task.stream] = i
    found: dict[str, Seconds] = defaultdict(float)
    at = int(spans.ends.argmax()) if len(spans.tasks) else None
    while at is not None:
        found[_does(replay, at)] += float(spans.ends[at] - spans.starts[at])
        own = before[at]
        waited = [*spans.tasks[at].after, *([] if own is None else [own])]
        at = max(waited, key=lambda i: spans.ends[i], default=None)
    return dict(sorted(((k, v) for k, v in found.items() if v > 0), key=lambda kv: -kv[1]))


def _does(replay: Replay, task: int) -> str:
    part = replay.part(task)
    if part is None:
        return "before a rank begins"
    if part.call is not None:
        return part.call.operation
    return {COMPUTE: "computing", COPY: "copying", PAUSE: HOST, WAIT: HOST}.get(part.kind, HOST)
