"""The report of a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commsim.report.contents.shared import CHOICE, PARTS_OF_TIME
from commsim.report.page import Lines, Part, Table
from commsim.report.words import words


def title(data: Mapping[str, Any]) -> str:
    """One line: what was played."""
    first, *others = data["collectives"]
    size = f" of {words('size_bytes', first['size_bytes'])}" if first["size_bytes"] else ""
    more = f" and {len(others)} more" if others else ""
    return (
        f"{first['operation']}{size}, {first['n_ranks']} ranks{more}, played transfer by transfer"
    )


def parts(data: Mapping[str, Any]) -> tuple[Part, ...]:
    """What each collective took and why, links, ranks, what was late; orders that were tried."""
    several = len(data["collectives"]) > 1
    return (
        Table(
            title="Collectives",
            path="collectives",
            columns=(
                ("operation", "operation"),
                ("size", "size_bytes"),
                ("ranks", "n_ranks"),
                *CHOICE,
                ("begins", "start_s"),
                ("duration", "duration_s"),
                ("bus bandwidth", "bus_bandwidth_bytes_per_s"),
            ),
        ),
        *(
            Table(
                title="Critical path" + (f" of collective {i + 1}" if several else ""),
                path=f"collectives/{i}/critical_path_s",
                columns=PARTS_OF_TIME,
            )
            for i in range(len(data["collectives"]))
        ),
        Table(
            title="Hottest links",
            path="links",
            columns=(
                ("link", "name"),
                ("share of its time", "utilization"),
                ("data", "bytes"),
                ("capacity", "capacity_bytes_per_s"),
            ),
            most=30,
        ),
        Table(
            title="Ranks that waited for late ones",
            path="waiting",
            columns=(
                ("rank", "rank"),
                ("arrived", "arrival_s"),
                ("for late ranks", "late_s"),
                ("otherwise", "waiting_s"),
                ("transferring", "transferring_s"),
                ("end", "end_s"),
            ),
        ),
        Table(
            title="Ranks",
            path="collectives/0/ranks",
            columns=(
                ("rank", "rank"),
                ("arrived", "arrival_s"),
                ("transferring", "transferring_s"),
                ("end", "end_s"),
            ),
        ),
        *(
            Lines(title="Watchdog", path=f"collectives/{i}/watchdog")
            for i, one in enumerate(data["collectives"])
            if one["watchdog"]
        ),
        Table(
            title="A ring through the ranks, in order",
            path="ring_orders",
            columns=(("order", "name"), ("duration", "duration_s"), ("ranks", "ranks")),
        ),
        Lines(title="Assumptions and doubts", path="notes"),
    )
