"""The report of serving a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commsim.report.contents.shared import PARTS_OF_TIME, memory_by_stage
from commsim.report.page import Facts, Lines, Part, Table

PHASES = (("prefill", "reading the prompts"), ("decode", "writing one token"))
MESSAGES = (
    ("along", "along"), ("operation", "operation"), ("ranks", "n_ranks"), ("size", "size_bytes"),
    ("algorithm", "algorithm"), ("times", "count"), ("each", "each_s"),
)  # fmt: skip


def title(data: Mapping[str, Any]) -> str:
    """One line: what is served on what."""
    return f"Serving {data['model']} on {data['n_ranks']} x {data['gpu']} of {data['cluster']}"


def parts(data: Mapping[str, Any]) -> tuple[Part, ...]:
    """The answer, both phases with their messages, memory."""
    return (
        Facts(
            title="Answer",
            rows=(
                ("time to first token", "time_to_first_token_s"),
                ("time per output token", "time_per_output_token_s"),
                ("whole request", "request_s"),
                ("tokens/s while decoding", "tokens_per_s"),
                ("tokens/s with the prompts", "output_tokens_per_s"),
                ("sequences", "batch"),
                ("tokens of a prompt", "prompt_tokens"),
                ("tokens written for each", "output_tokens"),
                ("keys and values of a GPU", "cache_bytes"),
                ("memory", "memory/peak_bytes"),
                ("memory left", "memory/headroom_bytes"),
                ("fits", "memory/fits"),
            ),
        ),
        *(
            part
            for phase, words in PHASES
            for part in (
                Table(
                    title=f"Where the time goes: {words}",
                    path=f"{phase}/breakdown_s",
                    columns=PARTS_OF_TIME,
                ),
                Table(title=f"Messages: {words}", path=f"{phase}/messages", columns=MESSAGES),
            )
        ),
        memory_by_stage(data["memory"]["stages"]),
        Table(title="Layout", path="layout", columns=(("option", "#key"), ("value", ""))),
        Lines(title="Assumptions and doubts", path="notes"),
    )
