"""How `commsim plan` shows what it found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from commsim.cli._output import print_facts, print_notes, print_section, print_table
from commsim.planning.buckets import WORTH
from commsim.planning.emission import Emission
from commsim.planning.plans import TIE, Plan, Plans
from commsim.planning.reasons import Rejection, explain
from commsim.planning.reliability import Reliability, with_slow_node
from commsim.planning.scaling import Point
from commsim.planning.sensitivity import Sensitivity
from commsim.planning.space import MICRO_BATCHES
from commsim.report.layouts import layout_text
from commsim.units import format_time

FRONT = 10
SLOWER = 1.1  # a slow node, in the text on reliability
DAY = 86400


def plain(extra: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked for besides, as JSON holds it."""
    found: dict[str, Any] = {}
    for name, value in extra.items():
        if isinstance(value, Emission):
            found[name] = {"text": value.text, "notes": list(value.notes)}
        elif isinstance(value, Reliability):
            found[name] = value.to_dict()
        elif name == "explanation":
            found[name] = value
        else:
            found[name] = [one.to_dict() for one in value]
    return found


def explanation(plans: Plans) -> list[str]:
    """Why the first is before the second, a line each."""
    if len(plans) < 2:
        return ["there is no second"]
    return list(explain(plans[0], plans[1]))


def show(plans: Plans) -> None:
    """The table, the front, what was left out."""
    print(
        f"{plans.model.name} on {plans.cluster.name}, {_gpus(plans.cluster.n_ranks)}: "
        f"{plans.searched:,} layouts searched, {plans.timed:,} timed"
    )
    price = plans.best.price
    played = any(plan.simulated is not None for plan in plans)
    columns = [">", "layout", ">step", ">80 %", ">MFU", ">free", ">exposed", "bottleneck"]
    columns[3:3] = [">simulated"] if played else []
    columns[-1:-1] = [">USD per 10^12 tokens"] if price else []
    print_table(f"the best by {plans.objective}", columns, [_row(p, played) for p in plans])
    ties = sum(plan.tie for plan in plans)
    if ties > 1:
        inside = sum(plan.inside for plan in plans)
        print(
            f"  ~ a tie: at most {_percent(TIE)} behind the best, which predictions do not tell "
            f"apart; {inside} of {len(plans)} lie in the best one's interval"
        )
    print_table(
        "not beaten in both time and memory", (">step", ">free", "layout"),
        [
            (format_time(p.duration), _gib(p.headroom), layout_text(p.layout))
            for p in plans.front[:FRONT]
        ],
    )  # fmt: skip
    if len(plans.front) > FRONT:
        print(f"  ... {len(plans.front) - FRONT} more, slower and smaller")
    print_section("left out", [f"{r.count:>9,} {_of(r)} {r.reason}" for r in plans.rejected])
    show_settings(plans)
    if price:
        print_section("price", [price.text])
    print_notes(plans.notes)


def show_settings(plans: Plans) -> None:
    """Buckets that the steps have, and settings that save more; a layout a line."""
    lines = []
    for plan in plans:
        best = plan.tuned
        if best is not None and best.saved:
            saved = f"{format_time(best.saved)} less ({100 * best.saved / plan.duration:.1f} %)"
            lines.append(f"{plan.place}: {best.text}: {saved}")
        elif plan.bucket is not None:
            lines.append(f"{plan.place}: the step is with buckets of {plan.bucket:,.0f} elements")
    plain = sum(plan.tuned is not None and not plan.tuned.saved for plan in plans)
    if plain:
        lines.append(
            f"NCCL's save less than {100 * WORTH:.1f} % of {plain} of the {len(plans)} steps"
        )
    print_section("settings of buckets and of NCCL", lines)


def show_extra(plans: Plans, extra: Mapping[str, Any]) -> None:
    """What was asked for besides."""
    if "explanation" in extra:
        print_section("why the best beats the second", extra["explanation"])
    if "sensitivity" in extra:
        show_sensitivity(plans, extra["sensitivity"])
    if "scaling" in extra:
        show_scaling(extra["scaling"])
    if "reliability" in extra:
        show_reliability(plans, extra["reliability"])
    if "emitted" in extra:
        emitted: Emission = extra["emitted"]
        print(f"\nconfiguration\n{emitted.text}", end="")
        print_section("not said there", emitted.notes)


def show_sensitivity(plans: Plans, found: Sequence[Sensitivity]) -> None:
    """A part a line, the most worth paying for first."""
    rows = [
        (
            one.part, f"{one.elasticity:.3f}" if math.isfinite(one.elasticity) else "-",
            _change(one.doubled, one.base), _change(one.halved, one.base),
        )
        for one in found
    ]  # fmt: skip
    print_table(
        f"what each part is worth to {layout_text(plans.best.layout)}",
        ("part", ">elasticity", ">step with twice", ">step with half"), rows,
    )  # fmt: skip
    print("  1 % more of a part shortens the step by `elasticity` %; memory: with a layout anew")


def show_scaling(points: Sequence[Point]) -> None:
    """A number of GPUs a line."""
    rows = []
    for point in points:
        if point.plan is None:
            rows.append((f"{point.gpus:,}", "-", "-", "-", "-", point.why))
            continue
        step = point.plan.step
        rows.append(
            (
                f"{point.gpus:,}", format_time(step.duration),
                f"{step.tokens_per_second_per_gpu:,.0f}", _percent(point.efficiency),
                _percent(step.mfu), layout_text(point.plan.layout)
                + (f"   changed: {', '.join(point.changed)}" if point.changed else ""),
            )
        )  # fmt: skip
    print_table(
        "scaling", (">GPUs", ">step", ">tokens/s per GPU", ">efficiency", ">MFU", "layout"), rows
    )


def show_reliability(plans: Plans, found: Reliability) -> None:
    """Goodput, and what a slow node costs."""
    step = plans.best.step
    slow = with_slow_node(step, SLOWER)
    print("\nfailures and slow nodes")
    print_facts(
        [
            ("time between failures", f"{found.mtbf / 3600:.1f} h"),
            ("a checkpoint, a restart",
             f"{format_time(found.checkpoint)}, {format_time(found.restart)}"),
            ("best time between checkpoints",
             f"{found.interval / 60:.0f} min (Young: {found.young / 60:.0f} min)"),
            ("goodput", f"{100 * found.goodput:.1f} % of the time"),
            ("tokens a day",
             f"{step.tokens / step.duration * DAY * found.goodput:.3g}"),
            ("with one node 10 % slower", _change(slow, step.duration)),
        ]
    )  # fmt: skip


def _row(plan: Plan, played: bool) -> tuple[str, ...]:
    low, high = plan.step.interval
    exposed = sum(plan.step.exposed.values())
    kinds = ", ".join(
        f"{kind} {_percent(part / plan.duration)}"
        for kind, part in plan.step.exposed.items()
        if part > 0.005 * plan.duration
    )
    name, share = plan.bottleneck
    cost = plan.cost_per_trillion_tokens
    row = [
        f"{plan.place}{'~' if plan.tie and plan.place > 1 else ' '}",
        layout_text(plan.layout), format_time(plan.duration),
        f"{format_time(low)} .. {format_time(high)}", _percent(plan.step.mfu), _gib(plan.headroom),
        f"{_percent(exposed / plan.duration)}{f' ({kinds})' if kinds else ''}",
    ]  # fmt: skip
    row[3:3] = ["-" if plan.simulated is None else format_time(plan.simulated)] if played else []
    return (*row, *([] if cost is None else [f"{cost:,.0f}"]), f"{name} {_percent(share)}")


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count:,} GPUs"


def _of(rejection: Rejection) -> str:
    one = rejection.of.removesuffix("es" if rejection.of == MICRO_BATCHES else "s")
    return one if rejection.count == 1 else rejection.of


def _change(now: float, before: float) -> str:
    if not math.isfinite(now):
        return "nothing fits"
    return f"{format_time(now)} ({100 * (now / before - 1):+.1f} %)"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _gib(nbytes: float) -> str:
    return f"{nbytes / 2**30:.1f} GiB"
