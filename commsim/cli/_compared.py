"""One operation on two clusters, as `commsim compare` shows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from commsim.cli import _arguments as a
from commsim.cli import _plot as pictures
from commsim.cli._drawn import Drawn
from commsim.cli._output import print_json, print_table
from commsim.cli.predict import breakdown_text
from commsim.errors import CommsimError
from commsim.prediction import Prediction
from commsim.report.comparison import Cause, Overrides, causes, cost_per_operation
from commsim.topology.cluster import Cluster
from commsim.units import Bytes, Seconds, format_size, format_time


def compared(
    first: a.Question, second: a.Question, changed: Callable[[Overrides], Cluster],
    sizes: Sequence[Bytes], drawn: Drawn, json: bool,
) -> None:  # fmt: skip
    """Both at every size; what the difference is due to at the largest. changed: the first cluster
    with some keys changed."""
    pairs = [(first.answer(nbytes), second.answer(nbytes)) for nbytes in sizes]
    largest = max(sizes)

    # A vendor's GPUs run with its own library, so the two can only be exchanged together.
    other_vendor = first.cluster.gpu.vendor != second.cluster.gpu.vendor

    def duration(overrides: Overrides) -> Seconds:
        cluster = changed(overrides)
        library = second.library if other_vendor and "node.gpu" in overrides else first.library
        return replace(first, cluster=cluster, library=library).answer(largest).duration

    found = list(causes(first.cluster, second.cluster, duration))
    one, other = (f"{each.library.name} {each.library.version}" for each in (first, second))
    if other_vendor:
        found = [_with_library(cause, one, other) for cause in found]
    elif one != other:
        found.insert(0, _library_cause(first, second, largest))
    data, at = _as_dict(pairs, found, largest), pairs[sizes.index(largest)]
    drawn.write(lambda: pictures.compared(first, second, found, at), "compare", data)
    if json:
        print_json(data)
        return
    _print_side_by_side(pairs)
    _print_causes(at, found)


def _with_library(cause: Cause, one: str, other: str) -> Cause:
    """The exchange of GPUs named as what it is: that of their library too."""
    if "node.gpu" not in cause.overrides:
        return cause
    return replace(
        cause,
        attribute="GPUs, links, library",
        before=f"{cause.before}, {one}",
        after=f"{cause.after}, {other}",
    )


def _library_cause(first: a.Question, second: a.Question, nbytes: Bytes) -> Cause:
    name = f"{second.library.name}@{second.library.version}"
    try:
        took, reason = replace(first, library=second.library).answer(nbytes).duration, ""
    except CommsimError as error:
        took, reason = math.nan, str(error)
    return Cause(
        attribute="library",
        before=f"{first.library.name}@{first.library.version}",
        after=name,
        overrides={"library": name},
        duration=took,
        reason=reason,
    )


def _print_side_by_side(pairs: list[tuple[Prediction, Prediction]]) -> None:
    one, other = pairs[0]
    for letter, p in (("A", one), ("B", other)):
        print(
            f"{letter}: {p.cluster.name}, {p.cluster.nodes} x {p.cluster.gpus_per_node}"
            f" {p.cluster.gpu.name}, {p.n_ranks} ranks, {p.library.name} {p.library.version}"
        )
    columns = ("size", ">A", ">B", ">A / B", ">A GB/s bus", ">B GB/s bus", "A", "B")
    rows = [
        (
            format_size(p.collective.nbytes),
            format_time(p.duration),
            format_time(q.duration),
            f"{p.duration / q.duration:.2f}",
            f"{p.bus_bandwidth / 1e9:.4g}",
            f"{q.bus_bandwidth / 1e9:.4g}",
            f"{p.algorithm}/{p.protocol}".rstrip("/"),
            f"{q.algorithm}/{q.protocol}".rstrip("/"),
        )
        for p, q in pairs
    ]
    print_table(one.collective.operation, columns, rows)


def _print_causes(pair: tuple[Prediction, Prediction], found: list[Cause]) -> None:
    p, q = pair
    size = format_size(p.collective.nbytes)
    base = ("A as it is", "", "", format_time(p.duration), "")
    rows = [
        (
            cause.attribute,
            cause.before,
            cause.after,
            "-" if math.isnan(cause.duration) else format_time(cause.duration),
            cause.reason or f"x {cause.duration / p.duration:.3f}",
        )
        for cause in found
    ]
    together = (
        "all together: B",
        "",
        "",
        format_time(q.duration),
        f"x {q.duration / p.duration:.3f}",
    )
    title = f"what the difference is due to, at {size}: one attribute of A changed at a time"
    columns = ("attribute", "A", "B", ">A with it", "change")
    print_table(title, columns, [base, *rows, together])
    for letter, prediction in (("A", p), ("B", q)):
        print(f"\n{letter} at {size}: {breakdown_text(prediction)}; binds: {prediction.bottleneck}")
    for letter, prediction in (("A", p), ("B", q)):
        money = cost_per_operation(prediction.cluster, prediction.n_ranks, prediction.duration)
        if money is None:
            print(f"{letter}: price not known")
        else:
            hourly = prediction.cluster.price_per_gpu_hour
            print(
                f"{letter}: {hourly:g} USD per GPU hour,"
                f" {1e6 * money:.4g} USD per million operations"
            )


def _as_dict(
    pairs: list[tuple[Prediction, Prediction]], found: list[Cause], largest: Bytes
) -> dict[str, Any]:
    return {
        "sizes": [
            {"a": p.to_dict(), "b": q.to_dict(), "ratio": p.duration / q.duration} for p, q in pairs
        ],
        "causes_at_bytes": largest,
        "causes": [
            {
                "attribute": cause.attribute,
                "a": cause.before,
                "b": cause.after,
                "changes": dict(cause.overrides),
                "duration_s": cause.duration,
                "reason": cause.reason,
            }
            for cause in found
        ],
        "price_per_gpu_hour_usd": {
            "a": pairs[0][0].cluster.price_per_gpu_hour,
            "b": pairs[0][1].cluster.price_per_gpu_hour,
        },
    }
