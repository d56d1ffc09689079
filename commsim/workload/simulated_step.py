"""One training step played: every layer's compute and messages on the streams of each stage's rank.

    duration = when the last stage's optimizer and the framework's own time are over

What predict_step adds up in closed form comes out of the timeline here: what waits for what, in
which order streams do their work, and who shares NICs and NVLink with whom. One rank of a stage
stands for all, which are alike. Of very many micro-batches some are played; the rest comes later by
one and the same time each period, as pipeline.outline explains. Ignored: ranks of one kind that are
slower than others (but for what predict_step says of them), switches between machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commsim.cost.profile import Profile
from commsim.engine.compilation import compiled
from commsim.topology.cluster import Cluster
from commsim.units import Seconds
from commsim.workload.layout import Layout
from commsim.workload.model import Model
from commsim.workload.pipeline import pipeline
from commsim.workload.step import StepPrediction, predict_step, setting, update_seconds
from commsim.workload.tasks.program import LINKS, PER_STAGE, Program, program
from commsim.workload.tasks.shared_play import play
from commsim.workload.tasks.works import COMPUTING, KINDS, STREAMS
from commsim.workload.trust import tags_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
PERIODS = 12
"""Periods of micro-batches that are played at least, before any are left out."""
MOST = 2_000_000
"""Tasks that are played without leaving any out."""
SETTLED = 1e-6
"""Share of a period's time by which two periods may differ and still be one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpan:
    """One task: on which stage and stream, what it is and of which micro-batch (-1: of none), s
    from the step's begin, and s that it takes alone."""

    stage: int
    stream: str
    name: str
    kind: str
    micro_batch: int
    start: Seconds
    end: Seconds
    alone: Seconds


@dataclass(frozen=True, kw_only=True, eq=False)
class StepTimeline:
    """A played training step. Times in s from its begin.

    predicted: the closed form's answer. starts, ends: of every task of the program; blame: the task
    each waited for last. shorter: the same with a period of micro-batches less, where `left_out`
    periods more were not played.
    """

    predicted: StepPrediction
    program: Program
    starts: Floats
    ends: Floats
    blame: Ints
    shorter: StepTimeline | None = None
    left_out: int = 0

    @property
    def duration(self) -> Seconds:
        """s of the whole step."""
        return self._with_left_out(self.played, self.shorter.played if self.shorter else 0.0)

    @property
    def played(self) -> Seconds:
        """s until the last task that was played ends."""
        return float(self.ends.max())

    def _with_left_out(self, played: Seconds, shorter: Seconds) -> Seconds:
        return played + self.left_out * (played - shorter)

    @property
    def tasks(self) -> int:
        """How many tasks were played."""
        return len(self.ends)

    @property
    def micro_batches_left_out(self) -> int:
        """Micro-batches that are as others and were not played."""
        return self.left_out * _period(self.predicted.layout)

    @cached_property
    def busiest(self) -> int:
        """The stage whose rank computes longest."""
        table = self.program.table
        load = np.bincount(table.sender, weights=table.duration * table.computes)
        return int(load.argmax())

    @cached_property
    def breakdown(self) -> dict[str, Seconds]:
        """Where the busiest stage's step goes, s; the parts sum to the duration."""
        if self.shorter is None:
            return self._breakdown(self.busiest)
        less = self.shorter._breakdown(self.busiest)
        return {
            k: self._with_left_out(v, less[k]) for k, v in self._breakdown(self.busiest).items()
        }

    def _breakdown(self, stage: int) -> dict[str, Seconds]:
        table, kind = self.program.table, self.program.kind
        line = np.flatnonzero(table.stream == stage * PER_STAGE)
        took = np.bincount(kind[line], weights=table.duration[line], minlength=len(KINDS))
        more = (self.ends - self.starts)[line].sum() - table.duration[line].sum()
        waited = np.zeros(len(KINDS))
        _pauses(line, self.starts, self.ends, self.blame, kind, self.played, waited)
        bubble = waited[:COMPUTING].sum()
        return {
            **{k: float(took[i]) for i, k in enumerate(KINDS[:COMPUTING])},
            "slowed by messages": float(max(0.0, more)),
            **{f"exposed {k}": float(waited[COMPUTING + i])
               for i, k in enumerate(KINDS[COMPUTING:])},
            "bubble": float(bubble),
        }  # fmt: skip

    @property
    def exposed(self) -> dict[str, Seconds]:
        """s that the busiest stage's compute waits for messages, by the layout's dimensions."""
        return {k: self.breakdown[f"exposed {k}"] for k in KINDS[COMPUTING:]}

    @property
    def bubble(self) -> Seconds:
        """s that the busiest stage waits for other stages' compute."""
        return self.breakdown["bubble"]

    @property
    def stretched(self) -> Seconds:
        """s that messages of the busiest stage took longer than alone, for sharing their ways."""
        found = self._stretched(self.busiest)
        less = self.shorter._stretched(self.busiest) if self.shorter else 0.0
        return self._with_left_out(found, less)

    def _stretched(self, stage: int) -> Seconds:
        table = self.program.table
        mine = ~table.computes & (table.sender == stage)
        return float(((self.ends - self.starts)[mine] - table.duration[mine]).sum())

    @property
    def spans(self) -> Iterator[StepSpan]:
        """Every task that takes time, stage by stage and stream by stream."""
        p = self.program
        streams = (*STREAMS, *LINKS)
        for i in np.lexsort((self.starts, p.table.stream)).tolist():
            if p.table.duration[i] > 0:
                stage, stream = divmod(int(p.table.stream[i]), PER_STAGE)
                yield StepSpan(
                    stage=stage, stream=streams[stream], name=p.names[p.name[i]],
                    kind=KINDS[p.kind[i]], micro_batch=int(p.micro_batch[i]),
                    start=float(self.starts[i]), end=float(self.ends[i]),
                    alone=float(p.table.duration[i]),
                )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able figures, keys with a unit suffix."""
        return {
            "duration_s": self.duration,
            "closed_form_s": self.predicted.duration,
            "busiest_stage": self.busiest,
            "breakdown_s": self.breakdown,
            "exposed_s": self.exposed,
            "bubble_s": self.bubble,
            "stretched_s": self.stretched,
            "tasks": self.tasks,
            "micro_batches_left_out": self.micro_batches_left_out,
        }


def simulate_step(
    model: Model, cluster: Cluster, layout: Layout, profile: Profile | str | Path | None = None
) -> StepTimeline:
    """One training step of `model` on `cluster` under `layout`, played task by task.

    profile: as of predict_step, whose errors it raises.

    >>> from commsim.topology.load import load_cluster
    >>> from commsim.workload.load import load_model
    >>> layout = Layout(tp=8, dp=2, global_batch=8, seq_len=4096)
    >>> found = simulate_step(load_model("llama3-8b"), load_cluster("dgx-h100", nodes=2), layout)
    >>> abs(found.duration / found.predicted.duration - 1) < 0.05
    True
    """
    predicted = predict_step(model, cluster, layout, profile)
    values = predicted.profile.values(tags_of(cluster, layout))
    s = setting(model, cluster, layout, values)
    optimizer = [update_seconds(row, s, layout) for row in predicted.grid]

    def run(micro_batches: int) -> StepTimeline:
        written = program(model, layout, s, predicted.hop, optimizer, micro_batches)
        starts, ends, blame = play(written.table, values["slowed"])
        return StepTimeline(
            predicted=predicted, program=written, starts=starts, ends=ends, blame=blame
        )

    return _folded(run, layout.micro_batches, _period(layout))


def _period(layout: Layout) -> int:
    """Micro-batches after which a step repeats itself in its middle; 0: never."""
    return pipeline(layout.schedule).period(layout.pp) if layout.pp > 1 else 1


def _folded(run: Callable[[int], StepTimeline], micro_batches: int, period: int) -> StepTimeline:
    """A step of so many micro-batches; where those are too many tasks, so many that one period more
    makes the same difference twice."""
    if not period or micro_batches < (PERIODS + 3) * period:
        return run(micro_batches)
    shown = micro_batches % period + PERIODS * period
    while shown + 2 * period < micro_batches:
        one = run(shown)
        if one.tasks / shown * micro_batches <= MOST:
            break
        two, three = run(shown + period), run(shown + 2 * period)
        before, after = two.played - one.played, three.played - two.played
        if abs(after - before) <= SETTLED * after:
            left_out = (micro_batches - shown) // period - 2
            return replace(three, shorter=two, left_out=left_out)
        shown += shown - shown % period
    return run(micro_batches)


@compiled
def _pauses(
    line: Any, starts: Any, ends: Any, blame: Any, kind: Any, until: float, waited: Any
) -> None:
    """By kind of what a stream waits for, s in which it does nothing.

    A pause is put down to the task that ended it, as far back as that one ran, then to what that
    one had waited for, and so on.
    """
    free = 0.0
    for place in range(len(line) + 1):
        if place < len(line):
            task = line[place]
            pause, cause, after = starts[task], blame[task], ends[task]
        else:  # from the stream's last task to the step's end
            pause, cause, after = until, -1, until
            for i in range(len(ends)):
                if ends[i] == until:
                    cause = i
        while pause > free and cause >= 0:
            begun = max(free, starts[cause])
            waited[kind[cause]] += pause - begun
            pause, cause = begun, blame[cause]
        free = after
