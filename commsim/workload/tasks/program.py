"""A whole training step as tasks: every stage's works in the pipeline's order, and what joins them.

One rank of a stage stands for all its ranks, which do the same at the same time. A work waits for
its input's transfer; the first forward for the parameters, the optimizer of every stage for all
gradients (their norm is a number of the whole model).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commsim.units import Seconds
from commsim.workload.communication import Message
from commsim.workload.layout import Layout
from commsim.workload.layouts.stages import stages
from commsim.workload.model import Model
from commsim.workload.passes import Setting
from commsim.workload.pipeline import order, pipeline
from commsim.workload.pipeline_plan import Plan, bind
from commsim.workload.tasks import gradients
from commsim.workload.tasks import works as step_works
from commsim.workload.tasks.beats import Unit, units
from commsim.workload.tasks.shared_play import Table
from commsim.workload.tasks.works import COMPUTING, KINDS, STREAMS, Bucket, Draft, Piece, Rules
from commsim.workload.works import Order

Ints = NDArray[np.int64]
Column = NDArray[Any]
F, B, W, BW = range(4)
LINKS = ("to the next stage", "to the stage before")
PER_STAGE = len(STREAMS) + len(LINKS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """table: the tasks. kind: places in step_works.KINDS. name: places in `names`. micro_batch: -1
    where a task is of none. grid: per stage and chunk its units."""

    table: Table
    kind: Ints
    name: Ints
    names: tuple[str, ...]
    micro_batch: Ints
    grid: tuple[tuple[tuple[Unit, ...], ...], ...]


def program(
    model: Model,
    layout: Layout,
    s: Setting,
    hop: Message | None,
    optimizer: Sequence[Seconds],
    micro_batches: int,
) -> Program:
    """All tasks of a step of so many micro-batches. optimizer: s on each stage."""
    cut = stages(model, layout)
    made: dict[object, tuple[Unit, ...]] = {}
    grid = tuple(tuple(made.setdefault(c, units(model, layout, s, c)) for c in row) for row in cut)
    return _Writer(model, layout, s, grid, hop, micro_batches).write(optimizer)


class _Writer:
    """A step as it is written down."""

    def __init__(
        self, model: Model, layout: Layout, s: Setting,
        grid: tuple[tuple[tuple[Unit, ...], ...], ...], hop: Message | None, micro_batches: int,
    ) -> None:  # fmt: skip
        self.layout, self.s, self.grid, self.hop = layout, s, grid, hop
        chunks = len(grid[0])
        self.found = pipeline(layout.schedule if layout.pp > 1 else "1f1b")
        route = self.found.route
        self.orders: Order = order(self.found, layout.pp, micro_batches, chunks)
        self.plan: Plan = bind(self.orders, chunks, route)
        self.beside = chunks > 1 or self.plan.splits  # transfers run beside compute
        every = layout.zero_stage == 3 and layout.pp == 1  # in every micro-batch
        alone = layout.dp * layout.cp == 1
        self.buckets: list[list[tuple[Bucket, ...]]] = [
            [
                () if every or alone else gradients.buckets(model, layout, s, row, part.embedding)
                for row, part in zip(rows, parts, strict=True)
            ]
            for rows, parts in zip(grid, stages(model, layout), strict=True)
        ]
        self.rules = [
            [
                Rules(
                    gradients.of_units(layout, s, row) if every and not alone else None,
                    layout.overlap_param_gather,
                    layout.overlap_grad_reduce,
                )
                for row in rows
            ]
            for rows in grid
        ]
        self.hops = (Draft(), Draft())
        for back, draft in enumerate(self.hops if hop is not None else ()):
            assert hop is not None
            draft.transfer(len(STREAMS) + back, LINKS[back], hop)
        self.pieces: dict[object, tuple[Piece, ...]] = {}
        self.drafts: list[Draft] = []  # all of them, so that none takes another's id
        self.columns: dict[int, dict[str, Column]] = {}
        self.parts: list[dict[str, Column]] = []
        self.names: dict[str, int] = {}
        self.pairs: list[Ints] = []  # (task, one that it waits for)
        self.more: list[tuple[int, int]] = []
        self.count = 0

    def write(self, optimizer: Sequence[Seconds]) -> Program:
        gathers = self._first_gathers()
        self._works(gathers)
        self._end(optimizer)
        columns = {key: np.concatenate([part[key] for part in self.parts]) for key in self.parts[0]}
        kind = columns["kind"].astype(np.int64)
        pairs = np.concatenate([*self.pairs, np.array(self.more, dtype=np.int64).reshape(-1, 2)])
        computes = kind < COMPUTING
        whole = {
            key: columns[key].astype(np.int64)
            for key in ("stream", "sender", "receiver", "name", "micro_batch")
        }
        return Program(
            table=Table(
                ranks=self.layout.pp, stream=whole["stream"], duration=columns["duration"],
                sender=whole["sender"], receiver=whole["receiver"], computes=computes,
                slows=~computes & (kind != KINDS.index("pp")), nics=columns["nics"],
                scale_up=columns["scale_up"],
                source=np.ascontiguousarray(pairs[:, 1]), target=np.ascontiguousarray(pairs[:, 0]),
            ),
            kind=kind, name=whole["name"], names=tuple(self.names),
            micro_batch=whole["micro_batch"], grid=self.grid,
        )  # fmt: skip

    def _add(self, draft: Draft, stage: int, micro_batch: int = -1, to: int | None = None) -> int:
        """A stage's tasks, in order of issue; the first one's place. to: whom they are sent to."""
        known = self.columns.get(id(draft))
        if known is None:
            self.drafts.append(draft)
            names = [self.names.setdefault(name, len(self.names)) for name in draft.name]
            known = {
                "stream": np.array(draft.stream), "kind": np.array(draft.kind),
                "name": np.array(names), "duration": np.array(draft.duration),
                "nics": np.array(draft.nics), "scale_up": np.array(draft.scale_up),
                "after": np.array(draft.after, dtype=np.int64).reshape(-1, 2),
            }  # fmt: skip
            self.columns[id(draft)] = known
        n, first = len(draft.stream), self.count
        part = {key: known[key] for key in ("kind", "name", "duration", "nics", "scale_up")}
        part["stream"] = known["stream"] + PER_STAGE * stage
        part["sender"] = np.full(n, stage)
        part["receiver"] = np.full(n, stage if to is None else to)
        part["micro_batch"] = np.full(n, micro_batch)
        self.parts.append(part)
        self.pairs.append(known["after"] + first)
        self.count += n
        return first

    def _first_gathers(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """All parameters gathered beside the first forward: by stage and chunk, the unit that
        first needs each bucket and the bucket's gather."""
        found: dict[tuple[int, int], list[tuple[int, int]]] = {}
        if not self.layout.overlap_param_gather:
            return found
        chunks = len(self.grid[0])
        for stage, rows in enumerate(self.buckets):
            for chunk in sorted(range(chunks), key=lambda c: int(self.plan.begin[stage, c])):
                for bucket in reversed(rows[chunk]):
                    draft = Draft()
                    ends = step_works.exchange(draft, bucket.gathers, "of parameters", ())
                    if ends:
                        place = self._add(draft, stage) + ends[-1]
                        found.setdefault((stage, chunk), []).append((bucket.needed, place))
        return found

    def _piece(self, stage: int, chunk: int, kind: int, last: bool) -> tuple[object, Piece]:
        """The tasks of a work; equal ones are written once."""
        last = last and kind != F and bool(self.buckets[stage][chunk])
        last = last and self.layout.overlap_grad_reduce
        alike = self.grid[stage][chunk]
        key = (id(alike), kind, last and (stage, chunk))
        if key not in self.pieces:
            rules = self.rules[stage][chunk]
            buckets = self.buckets[stage][chunk] if last else ()
            if kind == F:
                piece = step_works.forward(alike, rules)
            elif kind == W:
                piece = step_works.weights(alike, rules, buckets)
            else:
                piece = step_works.backward(alike, rules, kind == B and self.plan.splits, buckets)
            self.pieces[key] = (piece,)
        return key, self.pieces[key][0]

    def _works(self, gathers: dict[tuple[int, int], list[tuple[int, int]]]) -> None:
        plan, chunks = self.plan, len(self.grid[0])
        batches = np.empty(len(plan.stage), dtype=np.int64)
        for line, works in zip(plan.lines, self.orders, strict=True):
            batches[line] = [w.micro_batch for w in works]
        kind, pair = np.divmod(plan.cost, self.layout.pp * chunks)
        begins = {int(i) for i in plan.begin.ravel()}
        lasts = {int(i) for i in plan.last.ravel()}
        output = np.empty(len(plan.stage), dtype=np.int64)
        busy: dict[int, int] = {}  # by stage, the transfer that keeps it busy
        work = 0
        while work < len(plan.stage):
            stop = work + 1 + (work + 1 < len(plan.stage) and bool(plan.joined[work + 1]))
            stage = int(plan.stage[work])
            keyed = [
                self._piece(stage, int(pair[w]) % chunks, int(kind[w]), w in lasts)
                for w in range(work, stop)
            ]
            pieces = tuple(piece for _, piece in keyed)
            if len(keyed) == 2:
                both = (keyed[0][0], keyed[1][0])
                if both not in self.pieces:
                    self.pieces[both] = step_works.together(*pieces)
                pieces = self.pieces[both]
            base = self._add(pieces[0].draft, stage, int(batches[work]))
            for w, piece in zip(range(work, stop), pieces, strict=True):
                if plan.source[w] >= 0:
                    self.more.append((base + piece.first, int(output[plan.source[w]])))
                if w in begins:
                    for unit, place in gathers.get((stage, int(pair[w]) % chunks), ()):
                        self.more.append((base + piece.begins[unit], place))
                if stage in busy:
                    self.more.append((base + piece.first, busy[stage]))
                output[w] = base + piece.last
            busy.pop(stage, None)
            for w in range(work, stop):
                if plan.link[w] >= 0 and self.hop is not None:
                    output[w] = self._send(stage, int(plan.link[w]), int(output[w]), batches[w])
                    if not self.beside:
                        busy[stage] = int(output[w])
            work = stop

    def _send(self, stage: int, link: int, after: int, batch: int) -> int:
        back = link % 2
        to = (stage + (-1 if back else 1)) % self.layout.pp
        place = self._add(self.hops[back], stage, int(batch), to)
        self.more.append((place, after))
        return place

    def _end(self, optimizer: Sequence[Seconds]) -> None:
        """Reductions that nothing hides, the update, gathers that nothing hides."""
        layout = self.layout
        if not layout.overlap_grad_reduce:
            for stage, rows in enumerate(self.buckets):
                draft = Draft()
                last = draft.compute("backward", "all gradients", 0.0)
                for bucket in (bucket for row in rows for bucket in row):
                    step_works.exchange(draft, bucket.reduces, "of gradients", [last])
                self._add(draft, stage)
        stream = np.concatenate([part["stream"] for part in self.parts])
        _, lasts = np.unique(stream[::-1], return_index=True)
        draft = Draft()
        norm = draft.compute("optimizer", "gradient norm", 0.0)
        place = self._add(draft, 0) + norm
        self.more += [(place, len(stream) - 1 - int(i)) for i in lasts]
        for stage, rows in enumerate(self.buckets):
            draft = Draft()
            ends = [draft.compute("optimizer", "optimizer", optimizer[stage])]
            for bucket in (bucket for row in rows for bucket in reversed(row)):
                if not layout.overlap_param_gather:
                    ends = step_works.exchange(draft, bucket.gathers, "of parameters", ends)
            draft.compute("framework", "framework", self.s.values["step"], ends)
            self.more.append((self._add(draft, stage), place))
