"""Why a layout is not among the best, and why the best is the best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from commsim.planning.search import Found
from commsim.planning.space import MICRO_BATCHES
from commsim.units import format_time

if TYPE_CHECKING:
    from commsim.planning.plans import Plan

RULES = {
    "layout.tp": "tp does not divide the heads or features",
    "layout.pp": "the layers do not go into the pipeline's stages and chunks",
    "layout.ep": "ep does not divide the experts or the ranks of a stage",
    "layout.etp": "etp does not divide an expert",
    "layout.seq_len": "the sequence does not go into cp x tp pieces",
    "layout.global_batch": "the batch does not go into the replicas",
    MICRO_BATCHES: "their number does not go into the pipeline's schedule",
}
WORDS = {"optimizer": "optimizer states"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """How many were left out for one reason. of: "structures" (before sharding, micro-batch and
    switches are chosen), "micro-batches" (of structures) or "layouts"; those that are shown and the
    layouts left out are all that were searched."""

    reason: str
    count: int
    of: str = "layouts"


def rejections(founds: Sequence[Found], shown: int) -> tuple[Rejection, ...]:
    """Every reason with its count: rules first, then memory, then time; the largest first."""
    broken: Counter[str] = sum((found.broken for found in founds), Counter())
    lacking: Counter[str] = sum((found.lacking for found in founds), Counter())
    listed = [
        Rejection(
            reason=f"break a rule: {RULES.get(rule, rule)}",
            count=count,
            of=MICRO_BATCHES if rule == MICRO_BATCHES else "structures",
        )
        for rule, count in broken.most_common()
    ]
    listed += [
        Rejection(reason=f"do not fit: {WORDS.get(part, part)}", count=count)
        for part, count in lacking.most_common()
    ]
    slower = sum(found.searched for found in founds) - lacking.total() - shown
    if slower > 0:
        listed.append(Rejection(reason="fit, but are worse", count=slower))
    return tuple(listed)


def explain(better: Plan, other: Plan) -> tuple[str, ...]:
    """Why one plan is before another: what differs, and where the time goes, largest first."""
    lines = [f"it differs in {', '.join(differences(better, other)) or 'nothing'}"]
    mine, theirs = better.step.breakdown, other.step.breakdown
    gains = {
        name: theirs.get(name, 0.0) - mine.get(name, 0.0)
        for name in dict.fromkeys((*mine, *theirs))
    }
    total = other.duration - better.duration
    lines.append(
        f"{format_time(abs(total))} {'less' if total >= 0 else 'more'} a step "
        f"({100 * abs(total) / other.duration:.1f} %)"
    )
    if better.simulated is not None and other.simulated is not None:
        lines.append(
            f"played by the event engine: {format_time(better.simulated)} against "
            f"{format_time(other.simulated)}"
        )
    for name, gain in sorted(gains.items(), key=lambda g: -abs(g[1])):
        if abs(gain) > 1e-3 * better.duration:
            lines.append(
                f"{name}: {format_time(abs(gain))} {'saved' if gain > 0 else 'lost'} "
                f"({format_time(mine.get(name, 0.0))} against {format_time(theirs.get(name, 0.0))})"
            )
    memory = (better.step.memory.worst.needed, other.step.memory.worst.needed)
    lines.append(f"memory: {memory[0] / 2**30:.1f} GiB against {memory[1] / 2**30:.1f} GiB")
    return tuple(lines)


def differences(better: Plan, other: Plan) -> list[str]:
    """`tp 8 (not 4)` for every field that differs and means something in either, and buckets."""
    mine, theirs = better.layout, other.layout
    idle = {
        "sequence_parallel": max(mine.tp, theirs.tp) == 1,
        "order": max(mine.pp, theirs.pp) == 1,
        "schedule": max(mine.pp, theirs.pp) == 1,
        "overlap_param_gather": max(mine.zero_stage, theirs.zero_stage) == 0,
    }
    found = [
        f"{f.name} {getattr(mine, f.name)} (not {getattr(theirs, f.name)})"
        for f in fields(mine)
        if getattr(mine, f.name) != getattr(theirs, f.name) and not idle.get(f.name)
    ]
    if better.bucket != other.bucket:
        texts = [_elements(one.bucket) for one in (better, other)]
        found.append(f"buckets of {texts[0]} (not {texts[1]})")
    return found


def _elements(bucket: float | None) -> str:
    return "the framework's size" if bucket is None else f"{bucket:,.0f} elements"
