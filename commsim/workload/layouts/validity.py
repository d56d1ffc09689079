"""Whether a framework would start a layout, and the nearest one that it would."""

from __future__ import annotations

import math
from dataclasses import fields, replace

from commsim.errors import LayoutError, UnknownNameError
from commsim.topology.cluster import Cluster
from commsim.workload.layer import Experts
from commsim.workload.layout import Layout
from commsim.workload.layouts.rules import (
    COUNTS,
    WORDS,
    divisors,
    is_count,
    nearest_divisor,
    of_torch,
    order_problems,
    problems,
    schedule_name,
)  # fmt: skip
from commsim.workload.model import Model
from commsim.workload.pipeline import pipeline

__all__ = ["WORDS", "check", "nearest", "problems"]


def check(layout: Layout, model: Model | None = None, cluster: Cluster | None = None) -> None:
    """Raises LayoutError with every rule the layout breaks, and the nearest layout that does not.

    The rules are those at which the frameworks themselves stop. Without a model or a cluster, only
    those that need neither.
    """
    found = problems(layout, model, cluster)
    if found:
        other = nearest(layout, model, cluster)
        raise LayoutError(found, "" if other is None else _difference(layout, other))


def nearest(
    layout: Layout, model: Model | None = None, cluster: Cluster | None = None
) -> Layout | None:
    """The layout without problems whose numbers differ least, by their ratios; None: none found.

    Unknown words become the nearest known ones. tp, pp and cp take divisors of the number of
    GPUs, dp the rest; ep, etp, hsdp, interleave and the batches give way to them.
    """
    start = _known_words(layout)
    world = start.world if cluster is None else cluster.n_ranks
    best, least = None, math.inf
    for tp in divisors(world):
        for pp in divisors(world // tp):
            for cp in divisors(world // (tp * pp)):
                if cp > max(start.cp, 1):
                    break
                dp = world // (tp * pp * cp)
                candidate = _adapted(replace(start, tp=tp, pp=pp, cp=cp, dp=dp), model)
                distance = _distance(start, candidate)
                if distance < least and not problems(candidate, model, cluster):
                    best, least = candidate, distance
    return best


def _known_words(layout: Layout) -> Layout:
    changes: dict[str, object] = {}
    for key, names in WORDS.items():
        value = getattr(layout, key)
        if value not in names:
            changes[key] = UnknownNameError(key, str(value), names).nearest or names[0]
    try:
        pipeline(str(layout.schedule))
    except UnknownNameError as error:
        changes["schedule"] = error.nearest or Layout().schedule
    for key in COUNTS:
        value = getattr(layout, key)
        if not is_count(value):
            changes[key] = 1
    for key in ("etp", "hsdp"):
        if not (getattr(layout, key) is None or is_count(getattr(layout, key))):
            changes[key] = None
    if layout.zero_stage not in range(4):
        changes["zero_stage"] = 1
    if tuple(order_problems(replace(layout, placement=None))):
        changes["order"] = Layout().order
    return replace(layout, **changes) if changes else layout  # type: ignore[arg-type]


def _adapted(layout: Layout, model: Model | None) -> Layout:
    """The layout with what depends on its dimensions brought into line."""
    tp, pp, cp, dp = layout.tp, layout.pp, layout.cp, layout.dp
    per_rank = max(1, layout.global_batch // dp)
    micro = nearest_divisor(per_rank, layout.micro_batch)
    chunks = layout.interleave if pp > 1 else 1
    if chunks > 1 and model is not None and model.n_layers % (pp * chunks):
        chunks = nearest_divisor(max(1, model.n_layers // pp), chunks)
    count = max(1, round(layout.global_batch / (dp * micro)))
    if chunks > 1 and schedule_name(layout) != "gpipe":
        count = max(1, round(count / pp)) * pp
    if of_torch(layout) and schedule_name(layout) == "1f1b" and pp > 1:
        count = max(pp, count)
    if schedule_name(layout) == "dualpipe" and pp > 1:
        count = max(2 * pp, count + count % 2)
    experts = 1
    if model is not None:
        feeds = (layer.feed for layer, _ in model.stacks)
        experts = math.gcd(*(feed.count for feed in feeds if isinstance(feed, Experts))) or 1
    etp = layout.etp if layout.etp is None else nearest_divisor(tp * cp * dp, layout.etp)
    ranks = tp * cp * dp // (tp if etp is None else etp)
    ep = nearest_divisor(math.gcd(experts, ranks), layout.ep)
    hsdp = None if layout.hsdp is None else nearest_divisor(dp * cp, layout.hsdp)
    place = layout.placement
    return replace(
        layout,
        interleave=chunks,
        micro_batch=micro,
        global_batch=count * dp * micro,
        ep=ep,
        etp=etp,
        hsdp=hsdp,
        placement=place if place and sorted(place) == list(range(layout.world)) else None,
        zero_stage=min(layout.zero_stage, 1)
        if layout.framework == "deepspeed" and pp > 1
        else layout.zero_stage,
    )


def _distance(old: Layout, new: Layout) -> float:
    """How far apart two layouts are: the sum of their numbers' ratios, as logarithms.

    dp counts less: it is what users let follow from the rest.
    """
    weights = dict.fromkeys(COUNTS, 1.0) | {"dp": 0.25, "global_batch": 2.0, "seq_len": 2.0}
    return sum(
        weight * abs(math.log(getattr(new, key) / getattr(old, key)))
        for key, weight in weights.items()
    )


def _difference(old: Layout, new: Layout) -> str:
    """A line naming what the nearest valid layout changes."""
    changed = [
        f"{f.name}={getattr(new, f.name)!r}"
        for f in fields(Layout)
        if getattr(new, f.name) != getattr(old, f.name)
    ]
    return f"layout: the nearest valid one has {', '.join(changed)}"
