"""One training step in closed form: the straight line from model, cluster and layout to seconds.

    step = pipeline(forward, backward of every chunk's micro-batch)
           + what shows of the exchange of gradients and parameters
           + optimizer + the framework's own time

A chunk's passes are its layers' compute and the messages that nothing hides (passes.py); what
hides what follows each framework's schedule. The ranks of a stage are alike: one stands for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commsim.cost.profile import Profile
from commsim.topology.cluster import Cluster
from commsim.units import Seconds
from commsim.workload import compute, exchange, operations
from commsim.workload.chunk import ChunkCost, chunk_cost
from commsim.workload.communication import Message, Messages
from commsim.workload.compute import Spent
from commsim.workload.exchange import Exchange
from commsim.workload.frameworks import framework
from commsim.workload.layout import Layout
from commsim.workload.layouts import shares
from commsim.workload.layouts.stages import stages
from commsim.workload.layouts.validity import check
from commsim.workload.memory import Memory, memory
from commsim.workload.model import Model
from commsim.workload.passes import Sent, Setting
from commsim.workload.pipeline import Outline, outline, pipeline
from commsim.workload.trust import interval, settle, shipped, tags_of

Grid = list[list[ChunkCost]]
KINDS = ("tp", "cp", "ep", "pp", "dp")


@dataclass(frozen=True, kw_only=True, eq=False)
class StepPrediction:
    """One training step. Times in s; what a rank of the busiest stage does in them."""

    model: Model
    cluster: Cluster
    layout: Layout
    profile: Profile
    duration: Seconds
    spent: Spent
    exchange: Seconds
    optimizer: Seconds
    framework: Seconds
    pipeline: Outline
    grid: Grid
    exchanges: tuple[Exchange, ...]
    busiest: int
    hop: Message | None = None

    @property
    def interval(self) -> tuple[Seconds, Seconds]:
        """(low, high) s, the central 80 %."""
        return interval(self.duration, self.profile, tags_of(self.cluster, self.layout))

    @property
    def tokens(self) -> int:
        """Tokens (for a list of parts: samples) of one step."""
        return self.layout.global_batch * (1 if self.model.kind == "list" else self.layout.seq_len)

    @property
    def tokens_per_second_per_gpu(self) -> float:
        """Tokens/s of one GPU."""
        return self.tokens / self.duration / self.layout.world

    @property
    def model_flops(self) -> float:
        """FLOP of one step that the model asks for: 3 forward passes, causal attention counted by
        half, nothing recomputed."""
        tokens, seq = self.tokens, self.layout.seq_len
        return 3.0 * self.model.forward_flops(tokens, seq, causal_half=True)

    @property
    def mfu(self) -> float:
        """Model FLOP/s over the data sheet's dense rate for the layout's dtype."""
        rate = compute.sheet_rate(self.cluster.gpu, self.layout.dtype)
        return self.model_flops / self.duration / self.layout.world / rate

    @cached_property
    def memory(self) -> Memory:
        """Bytes of each stage's ranks; .peak, .fits."""
        return memory(self.model, self.cluster, self.layout)

    @cached_property
    def messages(self) -> tuple[Sent, ...]:
        """Every message of a rank of the busiest stage in one step, with its count."""
        m = _rounds(self.layout)
        found: dict[tuple[str, Message], list[float]] = {}
        for c in self.grid[self.busiest]:
            for sent in (*c.forward.sent, *c.backward.sent):
                if sent.message.duration:
                    key = sent.kind, sent.message
                    counts = found.setdefault(key, [0.0, 0.0])
                    counts[0] += sent.count * m
                    counts[1] += sent.exposed * sent.count * m
        listed = [Sent(k, msg, shown / n, n) for (k, msg), (n, shown) in found.items()]
        once = [x for e in self.exchanges for x in e.sent if x.message.duration]
        total = sum(x.message.duration * x.count for x in once)
        listed += [
            Sent("dp", x.message, self.exchange * x.message.duration / total, x.count) for x in once
        ]
        if self.hop is not None:
            crossings = 2 * m * len(self.grid[self.busiest])
            listed.append(Sent("pp", self.hop, self._waiting[1] / crossings, crossings))
        return tuple(listed)

    @property
    def exposed(self) -> dict[str, Seconds]:
        """s that compute waits for messages, by the layout's dimensions."""
        found = dict.fromkeys(KINDS, 0.0)
        for sent in self.messages:
            found[sent.kind] += sent.exposed * sent.count
        return found

    @cached_property
    def _waiting(self) -> tuple[Seconds, Seconds]:
        """s that the busiest stage waits in the pipeline: for its turn, and for messages."""
        c = self.grid[self.busiest]
        busy = sum(x.forward.total + x.backward.total for x in c) * _rounds(self.layout)
        idle = max(0.0, self.pipeline.duration - busy)
        if self.hop is None:
            return 0.0, 0.0
        free = _outline(self.layout, self.grid, 0.0).duration
        hops = min(idle, max(0.0, self.pipeline.duration - free))
        return idle - hops, hops

    @property
    def bubble(self) -> Seconds:
        """s that the busiest stage waits for its turn in the pipeline."""
        return self._waiting[0]

    @property
    def breakdown(self) -> dict[str, Seconds]:
        """Where the step goes, s; the parts sum to the duration."""
        return {
            "matmul": self.spent.products,
            "attention": self.spent.attention,
            "memory traffic": self.spent.traffic,
            "kernel launches": self.spent.kernels,
            **{f"exposed {k}": v for k, v in self.exposed.items() if v},
            "bubble": self.bubble,
            "optimizer": self.optimizer,
            "framework": self.framework,
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed, one sentence each."""
        known = self.profile.fitted
        strange = [
            f"no step with {kind} {tag!r} was measured: the interval is wider"
            for kind, tag in tags_of(self.cluster, self.layout)
            if tag not in known.get(kind, ())
        ]
        old = []
        if self.layout.dtype == "float16":
            old = ["float16 is taken for code of before 2022: attention is not fused"]
        return (*self.cluster.notes, *self.model.notes, *old, *strange, *self.memory.notes)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able figures, keys with a unit suffix."""
        low, high = self.interval
        return {
            "model": self.model.name,
            "parameters": self.model.parameters,
            "cluster": self.cluster.name,
            "gpu": self.cluster.gpu.name,
            "n_ranks": self.layout.world,
            "layout": asdict(self.layout),
            "duration_s": self.duration,
            "interval_s": [low, high],
            "tokens_per_s_per_gpu": self.tokens_per_second_per_gpu,
            "mfu": self.mfu,
            "exposed_s": self.exposed,
            "bubble_s": self.bubble,
            "breakdown_s": self.breakdown,
            "messages": [
                {
                    "along": sent.kind,
                    "operation": sent.message.operation,
                    "size_bytes": sent.message.nbytes,
                    "n_ranks": sent.message.ranks,
                    "algorithm": sent.message.algorithm,
                    "count": sent.count,
                    "each_s": sent.message.duration,
                    "exposed_each_s": sent.exposed,
                }
                for sent in self.messages
            ],
            "memory": self.memory.to_dict(),
            "notes": list(self.notes),
        }


def predict_step(
    model: Model, cluster: Cluster, layout: Layout, profile: Profile | str | Path | None = None
) -> StepPrediction:
    """What one training step of `model` takes on `cluster` under `layout`, in s.

    profile: constants of compute, or a calibration of the cluster's collectives, or its file; None:
    the shipped ones. Raises LayoutError where
    the layout cannot be, naming the rule and the nearest one that can.

    >>> from commsim.topology.load import load_cluster
    >>> from commsim.workload.load import load_model
    >>> layout = Layout(dp=8, global_batch=64, seq_len=4096, zero_stage=3, framework="fsdp")
    >>> step = predict_step(load_model("llama3-8b"), load_cluster("dgx-h100"), layout)
    >>> step.interval[0] < step.duration < step.interval[1], 0 < step.mfu < 1
    (True, True)
    """
    check(layout, model, cluster)
    cluster, profile = settle(cluster, profile)
    return step_with(model, cluster, layout, profile.values(tags_of(cluster, layout)), profile)


def setting(model: Model, cluster: Cluster, layout: Layout, values: Mapping[str, float]) -> Setting:
    """What all passes of a step share."""
    f = framework(layout)
    device = compute.slowest(compute.device(cluster.gpu), layout.world, values["variation"])
    return Setting(
        shape=operations.shape_of(layout, f.eager), device=device,
        values=values, framework=f, messages=Messages(cluster, layout), hidden=model.hidden,
        narrow=layout.dtype == "float8", recompute=layout.recompute,
        tp_overlap=layout.tp_comm_overlap, frozen=model.lora is not None,
        split=layout.pp > 1 and pipeline(layout.schedule).splits,
        paired=layout.pp > 1 and pipeline(layout.schedule).route == "both",
    )  # fmt: skip


def step_with(
    model: Model,
    cluster: Cluster,
    layout: Layout,
    values: Mapping[str, float],
    profile: Profile | None = None,
    made: dict[object, ChunkCost] | None = None,
) -> StepPrediction:
    """The same for a layout known to be valid, with these constants.

    made: chunks' costs known from layouts that differ in none of what they depend on; takes more.
    """
    s = setting(model, cluster, layout, values)
    made = {} if made is None else made
    grid = [[chunk_cost(model, layout, s, chunk, made) for chunk in row]
            for row in stages(model, layout)]  # fmt: skip
    hop = None
    if layout.pp > 1:
        hop = s.messages.hop(s.shape.tokens * model.hidden * s.shape.bytes / s.shape.tp)
    plan = _outline(layout, grid, 0.0 if hop is None else hop.duration)
    busiest = max(
        range(layout.pp), key=lambda i: sum(c.forward.total + c.backward.total for c in grid[i])
    )
    shown, exchanges = _exchange(model, grid, s, layout, plan, busiest)
    optimizer = max(update_seconds(row, s, layout) for row in grid)
    spent = sum((c.forward.spent + c.backward.spent for c in grid[busiest]), Spent())
    return StepPrediction(
        model=model, cluster=cluster, layout=layout, profile=profile or shipped(),
        duration=plan.duration + shown + optimizer + values["step"],
        spent=spent * _rounds(layout), exchange=shown, optimizer=optimizer,
        framework=values["step"], pipeline=plan, grid=grid, exchanges=exchanges, busiest=busiest,
        hop=hop,
    )  # fmt: skip


def _rounds(layout: Layout) -> float:
    """Micro-batches that go through each chunk of a stage."""
    both = layout.pp > 1 and pipeline(layout.schedule).route == "both"
    return layout.micro_batches / (2 if both else 1)


def _outline(layout: Layout, grid: Grid, hop: Seconds) -> Outline:
    forward = np.array([[c.forward.total for c in row] for row in grid])
    backward = np.array([[c.backward.total for c in row] for row in grid])
    chunks = forward.shape[1]
    if layout.pp == 1 and chunks == 1:
        m, f, b = layout.micro_batches, float(forward[0, 0]), float(backward[0, 0])
        return Outline(
            duration=m * (f + b), first_forward=np.zeros((1, 1)),
            last_backward=np.full((1, 1), m * (f + b)),
        )  # fmt: skip
    weight: NDArray[np.float64] | None = None
    if pipeline(layout.schedule).splits:
        weight = np.array([[c.backward.weight for c in row] for row in grid])
        backward = backward - weight
    beside_compute = chunks > 1 or weight is not None
    return outline(
        layout.schedule, layout.pp, layout.micro_batches, chunks, forward, backward, weight, hop,
        beside_compute,
    )  # fmt: skip


def _exchange(
    model: Model, grid: Grid, s: Setting, layout: Layout, plan: Outline, busiest: int
) -> tuple[Seconds, tuple[Exchange, ...]]:
    """What shows of the exchange of gradients and parameters, s, and the busiest stage's."""
    if (layout.zero_stage == 3 and layout.pp == 1) or layout.dp * layout.cp == 1:
        return 0.0, ()
    made = {
        id(c): exchange.once(c.share, s, layout, c.layers, c.pieces(model, layout))
        for c in {id(c): c for row in grid for c in row}.values()
    }
    reduced = late = 0.0
    for i, row in enumerate(grid):
        last = [(plan.last_backward[i, j], c.backward, c.layers, made[id(c)])
                for j, c in enumerate(row)]  # fmt: skip
        last.sort(key=lambda x: float(x[0]))
        reduced = max(reduced, exchange.after(last, layout.overlap_grad_reduce, s))
        first = [(plan.first_forward[i, j], c.forward, c.layers, made[id(c)])
                 for j, c in enumerate(row)]  # fmt: skip
        late = max(late, exchange.before(first, layout.overlap_param_gather, s))
    exchanges = tuple(made[id(c)] for c in grid[busiest])
    return float(max(0.0, reduced - plan.duration) + late), exchanges


def update_seconds(row: Sequence[ChunkCost], s: Setting, layout: Layout) -> Seconds:
    """The optimizer's step over what a rank of a stage keeps of the states: memory traffic, s."""
    held = _held(row)
    dense = expert = 1
    if layout.zero_stage:
        replicas = layout.dp * layout.cp
        dense = layout.hsdp or replicas
        expert = max(1, dense * layout.tp // (layout.ep * layout.expert_tp))
    elements = held.trained_dense / dense + held.trained_expert / expert
    return elements * s.framework.optimizer_bytes / (s.device.memory * s.values["stream"])


def _held(row: Sequence[ChunkCost]) -> shares.Share:
    total = shares.Share()
    for c in row:
        total = total.plus(c.share)
    return total
