"""Tables of how well predictions meet the published measurements, as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commsim.cost.bound import bound
from commsim.topology.placement import place
from validation.published import Point

Array = NDArray[np.float64]
REGIMES = ("latency", "middle", "bandwidth")


def headline(points: list[Point], predicted: Array) -> float:
    """Mean over platforms of the median absolute percentage error (1 = 100 %)."""
    return float(np.mean([v for _, v in by_platform(points, predicted)]))


def by_platform(points: list[Point], predicted: Array) -> list[tuple[str, float]]:
    ape = np.abs(predicted / np.array([p.measured for p in points]) - 1)
    names = np.array([p.platform for p in points])
    return [(n, float(np.median(ape[names == n]))) for n in sorted(set(names))]


def impossible(points: list[Point], predicted: Array) -> int:
    """Points whose predicted time no machine can reach."""
    return sum(
        t < 0.999 * bound(p.collective, p.cluster, place(p.cluster, p.collective.ranks))
        for p, t in zip(points, predicted, strict=True)
    )


def _macro(points: list[Point], predicted: Array, mine: Array) -> float:
    keep = [i for i in range(len(points)) if mine[i]]
    return headline([points[i] for i in keep], predicted[keep]) if keep else float("nan")


def table(
    points: list[Point],
    columns: dict[str, Array],
    groups: Iterable[tuple[str, Callable[[Point], bool]]],
    title: str,
) -> str:
    """One row a group: points, platforms, and for every column of predictions the mean of medians and the bias."""
    head = "".join(f" {c} | bias |" for c in columns)
    lines = [
        f"| {title} | points | platforms |{head}",
        "|---|---:|---:|" + "---:|---:|" * len(columns),
    ]
    measured = np.array([p.measured for p in points])
    for name, test in groups:
        mine = np.array([test(p) for p in points])
        if not mine.any():
            continue
        cells = ""
        for predicted in columns.values():
            bias = float(np.exp(np.mean(np.log(predicted[mine] / measured[mine]))))
            cells += f" {100 * _macro(points, predicted, mine):.1f} % | {bias:.3f} |"
        platforms = len({p.platform for p, m in zip(points, mine, strict=True) if m})
        lines.append(f"| {name} | {int(mine.sum())} | {platforms} |{cells}")
    return "\n".join(lines)


def tables(points: list[Point], columns: dict[str, Array], kinds: list[str]) -> str:
    """All tables; kinds[i] is the class ("one node/latency" ...) of point i."""
    kind = {id(p): k for p, k in zip(points, kinds, strict=True)}
    every: Any = [("all", lambda p: True)]
    classes = [
        (k, lambda p, k=k: kind[id(p)] == k)
        for k in (f"{n}/{r}" for n in ("one node", "multi-node") for r in REGIMES)
    ]
    ops = [
        (o, lambda p, o=o: p.collective.operation == o)
        for o in sorted({p.collective.operation for p in points})
    ]
    platforms = [(n, lambda p, n=n: p.platform == n) for n in sorted({p.platform for p in points})]
    return "\n\n".join(
        (
            table(points, columns, every, ""),
            table(points, columns, classes, "nodes/regime"),
            table(points, columns, ops, "operation"),
            table(points, columns, platforms, "platform"),
        )
    )


def worst_logs(
    points: list[Point], predicted: Array, count: int = 15
) -> list[tuple[str, int, float, float]]:
    """(first log, points, median error, bias) of the configurations predicted worst."""
    groups: dict[str, list[int]] = {}
    for i, p in enumerate(points):
        groups.setdefault(p.logs[0], []).append(i)
    rows = []
    for log, index in groups.items():
        ratio = predicted[index] / np.array([points[i].measured for i in index])
        rows.append(
            (
                log,
                len(index),
                float(np.median(np.abs(ratio - 1))),
                float(np.exp(np.mean(np.log(ratio)))),
            )
        )
    return sorted(rows, key=lambda r: -r[2])[:count]
