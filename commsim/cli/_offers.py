"""Several clusters for one model, as `plan -c A -c B` and `compare A B --model` show them."""

from __future__ import annotations

from collections.abc import Sequence

from commsim.cli import _plot as pictures
from commsim.cli._drawn import Drawn
from commsim.cli._output import print_json, print_notes, print_section, print_table
from commsim.cli._training import Training
from commsim.errors import PlanError
from commsim.planning.comparison import Offer, compare
from commsim.report.layouts import layout_text
from commsim.topology.cluster import Cluster
from commsim.units import GIB, format_time

DAY = 86400
NO_PRICE = "price not known: state price_per_gpu_hour in the cluster file"


def offered(machines: Sequence[Cluster], asked: Training, drawn: Drawn, json: bool) -> None:
    """The best plan on each cluster, what it costs, and why; PlanError where nothing fits on any.

    Several clusters cannot be told apart by name alone: they are A, B, C ... in the order given.
    """
    offers = compare(machines, asked.plans, asked.objective)
    if all(offer.plan is None for offer in offers):
        raise PlanError("\n".join(offer.why for offer in offers))
    data = {
        "model": asked.model.name, "global_batch": asked.global_batch, "seq_len": asked.seq_len,
        "objective": asked.objective, "offers": [offer.to_dict() for offer in offers],
    }  # fmt: skip
    drawn.write(lambda: pictures.offered(offers), "compare", data)
    if json:
        print_json(data)
        return
    _show_plans(offers, asked)
    _show_money(offers)
    _show_causes(offers)
    given = sorted(offers, key=lambda offer: offer.number)
    print_section("no plan", [f"{letter(o.number)}: {o.why}" for o in given if o.plan is None])
    print_section(
        "prices", [f"{letter(o.number)}: {o.price.text if o.price else NO_PRICE}" for o in given]
    )
    notes: dict[str, list[str]] = {}
    for offer in given:
        for note in offer.notes:
            notes.setdefault(note, []).append(letter(offer.number))
    print_notes(f"{', '.join(letters)}: {note}" for note, letters in notes.items())


def letter(number: int) -> str:
    """A for the first given, B for the second ...; a number from the 27th on."""
    return chr(ord("A") + number - 1) if number <= 26 else str(number)


def _name(offer: Offer) -> str:
    where, given = offer.cluster, letter(offer.number)
    return f"{given}: {where.name}, {where.nodes} x {where.gpus_per_node} {where.gpu.name}"


def _place(offer: Offer) -> str:
    return "" if offer.plan is None else f"{offer.place}{'~' if offer.tie else ' '}"


def _show_plans(offers: Sequence[Offer], asked: Training) -> None:
    rows = []
    for offer in offers:
        if offer.plan is None:
            rows.append((_place(offer), _name(offer), *7 * ("-",)))
            continue
        plan, (low, high) = offer.plan, offer.plan.step.interval
        rows.append(
            (
                _place(offer), _name(offer), format_time(plan.duration),
                f"{format_time(low)} .. {format_time(high)}", f"{offer.tokens_per_second:,.0f}",
                _percent(plan.step.mfu), f"{plan.headroom / GIB:.1f} GiB",
                "*" if offer.front else "", layout_text(plan.layout),
            )
        )  # fmt: skip
    print_table(
        f"{asked.model.name}, batch {asked.global_batch:,} x {asked.seq_len:,}: the best layout of "
        f"each, by {asked.objective}",
        ("", "cluster", ">step", ">80 %", ">tokens/s", ">MFU", ">free", "front", "layout"), rows,
    )  # fmt: skip
    print("  *: not beaten in time, cost and memory at once")
    if any(offer.tie for offer in offers):
        print("  ~: a tie, inside the 80 % interval of the best")


def _show_money(offers: Sequence[Offer]) -> None:
    rows, ties, base = [], False, _base(offers)
    for offer in offers:
        if offer.duration is None or offer.interval is None or offer.against is None:
            continue
        (low, high), against = offer.interval, offer.against
        ties_of = [tie and offer.number != against.number for tie in (
            against.time_tie, against.cost_tie
        )]  # fmt: skip
        ties = ties or any(ties_of)
        money = ["-", "-"]
        if offer.cost is not None and offer.cost_interval is not None:
            least, most = offer.cost_interval
            money = [f"{offer.cost:,.0f}", f"{least:,.0f} .. {most:,.0f}"]
        rows.append(
            (
                letter(offer.number), _days(offer.duration), f"{_days(low)} .. {_days(high)}",
                _ratio(against.time, ties_of[0]),
                "-" if offer.price is None else f"{offer.price.usd_per_gpu_hour:g}", *money,
                _ratio(against.cost, ties_of[1]),
            )
        )  # fmt: skip
    columns = ("", ">days", ">80 %", f">of {base}", ">USD per GPU-hour", ">USD", ">80 %")
    print_table("10^12 tokens", (*columns, f">of {base}"), rows)
    if ties:
        print(f"  ~: a tie with {base}, inside its 80 % interval")


def _show_causes(offers: Sequence[Offer]) -> None:
    """A column of days and one of USD for every cluster but the first, which add up to the
    difference."""
    compared = sorted((o for o in offers if _causes(o)), key=lambda offer: offer.number)
    if not compared:
        return
    names = dict.fromkeys(name for offer in compared for name in _causes(offer))
    columns = ["cause"]
    rows = [[name] for name in (*names, "together")]
    for offer in compared:
        found = _causes(offer)
        columns += [f">{letter(offer.number)}: days", f">{letter(offer.number)}: USD"]
        whole = [sum(days for days, _ in found.values())]
        money = [cost for _, cost in found.values() if cost is not None]
        sums = (whole[0], sum(money) if money else None)
        for row, figures in zip(rows, (*(found.get(n) for n in names), sums), strict=True):
            row += ["-", "-"] if figures is None else [_more(figures[0]), _dearer(figures[1])]
    title = f"what the difference to {_base(offers)} is due to, for 10^12 tokens"
    print_table(title, columns, rows)


def _causes(offer: Offer) -> dict[str, tuple[float, float | None]]:
    """Days and USD by cause."""
    if offer.against is None:
        return {}
    return {c.name: (c.duration / DAY, c.cost) for c in offer.against.causes}


def _base(offers: Sequence[Offer]) -> str:
    """The letter of the cluster that the others are held against."""
    return next(letter(o.against.number) for o in offers if o.against is not None)


def _ratio(value: float | None, tie: bool) -> str:
    return "-" if value is None else f"x {value:.3f}{'~' if tie else ' '}"


def _days(seconds: float) -> str:
    days = seconds / DAY
    return f"{days:,.1f}" if days >= 10 else f"{days:.3g}"


def _more(days: float) -> str:
    return f"{days:+,.1f}" if abs(days) >= 10 else f"{days:+.2f}"


def _dearer(cost: float | None) -> str:
    return "-" if cost is None else f"{cost:+,.0f}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
