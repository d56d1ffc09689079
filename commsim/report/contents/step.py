"""The report of a training step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commsim.report.contents.shared import INTERVAL, PARTS_OF_TIME, memory_by_stage
from commsim.report.page import Facts, Lines, Part, Table


def title(data: Mapping[str, Any]) -> str:
    """One line: what trains on what."""
    return f"One step of {data['model']} on {data['n_ranks']} x {data['gpu']} of {data['cluster']}"


def parts(data: Mapping[str, Any]) -> tuple[Part, ...]:
    """The answer, its parts, messages and memory; the played step where there is one."""
    played = (
        Facts(
            title="Played task by task",
            rows=(
                ("step", "simulated/duration_s"),
                ("closed form", "simulated/closed_form_s"),
                ("bubble", "simulated/bubble_s"),
                ("messages slowed by others", "simulated/stretched_s"),
                ("tasks", "simulated/tasks"),
                ("micro-batches left out", "simulated/micro_batches_left_out"),
            ),
        ),
        Table(
            title="Where the played step goes",
            path="simulated/breakdown_s",
            columns=PARTS_OF_TIME,
        ),
    )
    return (
        Facts(
            title="Answer",
            rows=(
                ("step", "duration_s"),
                *INTERVAL,
                ("tokens/s of a GPU", "tokens_per_s_per_gpu"),
                ("MFU", "mfu"),
                ("bubble", "bubble_s"),
                ("memory", "memory/peak_bytes"),
                ("memory left", "memory/headroom_bytes"),
                ("fits", "memory/fits"),
            ),
        ),
        Table(
            title="Where the step goes",
            path="breakdown_s",
            columns=PARTS_OF_TIME,
        ),
        *played,
        Table(
            title="Communication of one rank",
            path="messages",
            columns=(
                ("along", "along"),
                ("operation", "operation"),
                ("ranks", "n_ranks"),
                ("size", "size_bytes"),
                ("algorithm", "algorithm"),
                ("times", "count"),
                ("each", "each_s"),
                ("exposed of each", "exposed_each_s"),
            ),
        ),
        memory_by_stage(data["memory"]["stages"]),
        Table(title="Layout", path="layout", columns=(("option", "#key"), ("value", ""))),
        Lines(title="Assumptions and doubts", path="notes"),
    )
