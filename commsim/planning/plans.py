"""From a model and a cluster to its layouts, the best first: the straight line of planning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, overload

from commsim.cost.profile import Profile
from commsim.errors import PlanError, UnknownNameError
from commsim.planning.buckets import best as best_bucket
from commsim.planning.buckets import with_size
from commsim.planning.closer import Looked, look
from commsim.planning.engine import Engine
from commsim.planning.least import fits, least_nodes
from commsim.planning.prices import Price, cost, price_of
from commsim.planning.reasons import Rejection, rejections
from commsim.planning.search import (
    Candidate,
    Found,
    Progress,
    front_of,
    memory_first,
    search,
    time_first,
)
from commsim.planning.space import Space
from commsim.planning.survey import lacking
from commsim.planning.tuning import Tuned
from commsim.topology.cluster import Cluster
from commsim.units import Seconds, format_time
from commsim.workload.layout import Layout
from commsim.workload.layouts.rules import problems
from commsim.workload.model import Model
from commsim.workload.step import StepPrediction, predict_step
from commsim.workload.trust import settle

OBJECTIVES = ("time", "cost", "memory")
TIE = 0.04
"""Two steps of one model on one machine that differ by less are not told apart: the median error of
the ratio of two published steps, their source left out, 4.2 % (python -m validation.training)."""
TRILLION = 1e12
SHARDING = ("fsdp", "torchtitan", "deepspeed")
"""Frameworks that shard parameters too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One layout and what it would do.

    place: 1 is the best. tie: is it no worse than the best by more than predictions can tell?
    inside: does the best one's 80 % interval hold its duration? simulated: s of the step played by
    the event engine, where that was asked for. bucket: elements of the gradients' buckets, with
    which `step` is; None: the framework's own. tuned: the step with its best settings of NCCL too,
    where those were searched. price: None where unknown.
    """

    place: int
    layout: Layout
    step: StepPrediction
    tie: bool
    inside: bool
    simulated: Seconds | None = None
    bucket: float | None = None
    tuned: Tuned | None = None
    price: Price | None = None

    @property
    def duration(self) -> Seconds:
        """s of one step."""
        return self.step.duration

    @property
    def headroom(self) -> float:
        """Bytes left on the worst GPU."""
        return self.step.memory.headroom

    @property
    def bottleneck(self) -> tuple[str, float]:
        """Where most of the step goes, and its share."""
        parts = self.step.breakdown
        name = max(parts, key=lambda part: parts[part])
        return name, parts[name] / self.duration

    @property
    def cost_per_trillion_tokens(self) -> float | None:
        """USD for 10^12 tokens (samples, for a list of parts); None without a price."""
        if self.price is None:
            return None
        return cost(self.price, self.layout.world, self.duration) * TRILLION / self.step.tokens

    def to_dict(self) -> dict[str, Any]:
        """Plain figures for JSON, keys with their unit."""
        bottleneck, share = self.bottleneck
        found = self.step.to_dict()
        return {
            "place": self.place, "tie": self.tie, "inside_interval_of_best": self.inside,
            "bottleneck": bottleneck, "bottleneck_share": share,
            "headroom_bytes": self.headroom,
            "simulated_s": self.simulated,
            "bucket_elements": self.bucket,
            "tuned": None if self.tuned is None else self.tuned.to_dict(),
            "usd_per_trillion_tokens": self.cost_per_trillion_tokens,
            **{key: found[key] for key in (
                "layout", "duration_s", "interval_s", "tokens_per_s_per_gpu", "mfu", "exposed_s",
                "bubble_s", "breakdown_s", "memory",
            )},
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Plans(Sequence[Plan]):
    """Layouts, the best first. front: those that no other beats in both time and memory (and so in
    cost). rejected: why the others are not here, with counts."""

    model: Model
    cluster: Cluster
    objective: str
    plans: tuple[Plan, ...]
    front: tuple[Plan, ...]
    rejected: tuple[Rejection, ...]
    searched: int
    timed: int
    notes: tuple[str, ...] = field(default=())

    @overload
    def __getitem__(self, index: int) -> Plan: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Plan, ...]: ...
    def __getitem__(self, index: int | slice) -> Plan | tuple[Plan, ...]:
        return self.plans[index]

    def __len__(self) -> int:
        return len(self.plans)

    @property
    def best(self) -> Plan:
        """The first."""
        return self.plans[0]

    def why(self, layout: Layout) -> str:
        """Why a layout is not the best, one line: a rule, memory, or time."""
        broken = problems(layout, self.model, self.cluster)
        if broken:
            return broken[0]
        step = predict_step(self.model, self.cluster, layout, self.best.step.profile)
        step = with_size(step, best_bucket(step))
        took = step.memory
        if not took.fits:
            return (
                f"does not fit: {lacking(took)} take most, {-took.headroom / 2**30:.1f} GiB are "
                f"missing on rank {took.worst.rank}"
            )
        best = self.best.duration
        return (
            f"{format_time(step.duration)} a step against {format_time(best)} of the best "
            f"({100 * (step.duration / best - 1):+.1f} %), {took.headroom / 2**30:.1f} GiB free "
            f"against {self.best.headroom / 2**30:.1f} GiB"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain figures for JSON, keys with their unit."""
        price = self.best.price
        return {
            "model": self.model.name, "parameters": self.model.parameters,
            "cluster": self.cluster.name, "gpu": self.cluster.gpu.name,
            "n_ranks": self.cluster.n_ranks, "objective": self.objective,
            "searched": self.searched, "timed": self.timed,
            "price": None if price is None else price.to_dict(),
            "plans": [plan.to_dict() for plan in self.plans],
            "front": [
                {"duration_s": p.duration, "headroom_bytes": p.headroom,
                 "usd_per_trillion_tokens": p.cost_per_trillion_tokens,
                 "layout": p.to_dict()["layout"]}
                for p in self.front
            ],
            "rejected": [{"reason": r.reason, "count": r.count, "of": r.of} for r in self.rejected],
            "notes": list(self.notes),
        }  # fmt: skip


def plan(
    model: Model,
    cluster: Cluster,
    *,
    global_batch: int,
    seq_len: int,
    objective: str = "time",
    framework: str | Sequence[str] = "megatron",
    dtype: str = "bfloat16",
    only: Mapping[str, Sequence[Any]] | None = None,
    without: Mapping[str, Sequence[Any]] | None = None,
    top: int = 20,
    simulate: int = 0,
    tuned: int = 0,
    profile: Profile | str | Path | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Plans:
    """The best layouts of a model on all GPUs of a cluster.

    Every layout that a framework can be told is looked at (space.py); memory decides first, then a
    bound on time that no optimum can fail (bound.py), then the step itself. objective: "time",
    "memory" (the most left on the worst GPU), or "cost" (on one cluster the same order as time).
    only: dimensions held to some values, `{"tp": (4, 8)}`; without: values that they may not take,
    `{"zero_stage": (3,)}`. simulate: so many of the best are
    played by the event engine too, and ranked among themselves by what it says. tuned: for so many
    of the best NCCL's settings are searched too (tuning.py), and they are ranked among themselves
    with the best of these. Raises PlanError where nothing fits, naming the
    least number of GPUs that would do.

    >>> from commsim.topology.load import load_cluster
    >>> from commsim.workload.load import load_model
    >>> plans = plan(load_model("llama3-8b"), load_cluster("dgx-h100"), global_batch=32,
    ...              seq_len=8192, only={"micro_batch": (1,), "pp": (1,), "cp": (1,)})
    >>> plans[0].layout.world, plans[0].step.memory.fits
    (8, True)
    """
    if objective not in OBJECTIVES:
        raise UnknownNameError("objective", objective, OBJECTIVES)
    if top < 1 or simulate < 0 or tuned < 0:
        raise PlanError(
            "plan: expected top of 1 or more, simulate and tuned of 0 or more, got "
            f"{top}, {simulate} and {tuned}"
        )
    cluster, profile = settle(cluster, profile)
    names = (framework,) if isinstance(framework, str) else tuple(framework)
    held, kept_out = (
        {name: tuple(values) for name, values in (listed or {}).items()}
        for listed in (only, without)
    )
    spaces = [
        Space(
            model=model, cluster=cluster, global_batch=global_batch, seq_len=seq_len,
            framework=name, dtype=dtype, only=held, without=kept_out,
        )
        for name in names
    ]  # fmt: skip
    engine = engine or Engine()
    founds = [
        search(
            space, profile, engine,
            objective="memory" if objective == "memory" else "time", top=top, progress=progress,
        )
        for space in spaces
    ]  # fmt: skip
    if not any(found.best for found in founds):
        raise _nothing(spaces, founds)
    by_memory = objective == "memory"
    best = sorted(
        (c for found in founds for c in found.best), key=memory_first if by_memory else time_first
    )[:top]
    looked = look(spaces, [c.layout for c in best], profile, engine, simulate, tuned)
    if not by_memory:
        # Those looked at closer are ranked among themselves: no other is judged so well.
        closer = len(looked.played or looked.tuned)
        best[:closer] = sorted(best[:closer], key=lambda c: looked.duration(c.layout, c.duration))
    return _ranked(spaces[0], objective, founds, best, looked, profile)


def _ranked(
    space: Space, objective: str, founds: Sequence[Found], best: Sequence[Candidate],
    looked: Looked, profile: Profile,
) -> Plans:  # fmt: skip
    model, cluster = space.model, space.cluster
    front = front_of([c for found in founds for c in found.front])
    price = price_of(cluster)

    def step_of(c: Candidate) -> StepPrediction:
        return with_size(predict_step(model, cluster, c.layout, profile), c.bucket)

    first = step_of(best[0])

    def plan_of(place: int, c: Candidate) -> Plan:
        step = step_of(c)
        return Plan(
            place=place, layout=c.layout, bucket=c.bucket, step=step, price=price,
            simulated=looked.played.get(c.layout), tuned=looked.tuned.get(c.layout),
            # What the best has most of is memory: steps of about its duration are no ties then.
            tie=place == 1
            or (objective != "memory" and step.duration <= first.duration * (1 + TIE)),
            inside=first.interval[0] <= step.duration <= first.interval[1],
        )  # fmt: skip

    notes = list(first.notes)
    if price is None:
        notes.append(
            f"no price of {cluster.gpu.name} is known: state price_per_gpu_hour in the cluster file"
        )
    return Plans(
        model=model, cluster=cluster, objective=objective,
        plans=tuple(plan_of(i, c) for i, c in enumerate(best, 1)),
        front=tuple(plan_of(i, c) for i, c in enumerate(front, 1)),
        rejected=rejections(founds, len(best)),
        searched=sum(found.searched for found in founds),
        timed=sum(found.timed for found in founds),
        notes=tuple(notes),
    )  # fmt: skip


def _nothing(spaces: Sequence[Space], founds: Sequence[Found]) -> PlanError:
    """Why there is no layout at all, and what would do."""
    space, cluster = spaces[0], spaces[0].cluster
    gpus = "1 GPU" if cluster.n_ranks == 1 else f"{cluster.n_ranks} GPUs"
    what = f"{space.model.name or 'the model'} on {cluster.name} with {gpus}"
    if any(found.lacking for found in founds):
        nodes = least_nodes(space)
        others = [
            name
            for name in SHARDING
            if name not in [one.framework for one in spaces]
            and fits(replace(space, framework=name, only={}, without={}))
        ]
        hints = []
        if nodes is not None:
            alone = not cluster.node.nics and nodes > cluster.hosts_per_domain
            unable = ", but these have no network" if alone else ""
            hints.append(
                f"the least that would do is {nodes * cluster.gpus_per_node} GPUs "
                f"({nodes} nodes{unable})"
            )
        if others:
            hints.append(f"--framework {others[0]} would fit here, as it shards parameters")
        least = None if nodes is None else nodes * cluster.gpus_per_node
        return PlanError(
            f"plan: {what}: no layout fits in memory; "
            + ("; ".join(hints) or "no number of its GPUs would do"),
            least,
        )
    told = rejections(founds, 0)
    reasons = "; ".join(f"{r.count:,} {r.of} {r.reason}" for r in told)
    if any("layout.global_batch" in found.broken for found in founds):
        reasons += f"; a multiple of the {gpus} goes into any number of replicas"
    if not reasons:
        held = ", ".join(
            [f"{name}={','.join(map(str, values))}" for name, values in space.only.items()]
            + [f"not {name}={','.join(map(str, v))}" for name, v in space.without.items()]
        )
        reasons = f"{held} leaves none; tp x cp x dp x pp is the number of GPUs"
    return PlanError(f"plan: {what}: no layout is possible: {reasons}")
