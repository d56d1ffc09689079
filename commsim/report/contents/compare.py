"""The report of a comparison: of one operation on two clusters, of a training on several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commsim.report.contents.plan import LAYOUT
from commsim.report.contents.shared import INTERVAL
from commsim.report.page import Facts, Lines, Part, Table


def title(data: Mapping[str, Any]) -> str:
    """One line: what was asked of which clusters."""
    if "offers" in data:
        first, *others = sorted(data["offers"], key=lambda offer: offer["number"])
        against = ", ".join(f"{o['cluster']} ({o['n_ranks']} GPUs)" for o in others)
        return f"{data['model']}: {first['cluster']} ({first['n_ranks']} GPUs) against {against}"
    first = data["sizes"][0]
    a, b = first["a"], first["b"]
    return (
        f"{a['operation']}: {a['cluster']} ({a['n_ranks']} ranks) against {b['cluster']} "
        f"({b['n_ranks']} ranks)"
    )


PARTS: tuple[Part, ...] = (
    Table(
        title="By size",
        path="sizes",
        columns=(
            ("size", "a/size_bytes"),
            ("A", "a/duration_s"),
            ("B", "b/duration_s"),
            ("A / B", "ratio"),
            ("A bus bandwidth", "a/bus_bandwidth_bytes_per_s"),
            ("B bus bandwidth", "b/bus_bandwidth_bytes_per_s"),
            ("A algorithm", "a/algorithm"),
            ("A protocol", "a/protocol"),
            ("B algorithm", "b/algorithm"),
            ("B protocol", "b/protocol"),
        ),
    ),
    Facts(title="One attribute of A changed at a time", rows=(("size", "causes_at_bytes"),)),
    Table(
        title="What the difference is due to",
        path="causes",
        columns=(
            ("attribute", "attribute"),
            ("A", "a"),
            ("B", "b"),
            ("A with it", "duration_s"),
            ("why not", "reason"),
        ),
    ),
    Facts(
        title="Price in USD per GPU hour",
        rows=(("A", "price_per_gpu_hour_usd/a"), ("B", "price_per_gpu_hour_usd/b")),
    ),
    Lines(title="Assumptions and doubts: A", path="sizes/0/a/notes"),
    Lines(title="Assumptions and doubts: B", path="sizes/0/b/notes"),
)


CLUSTER = (("", "number"), ("cluster", "cluster"))
TRAINING: tuple[Part, ...] = (
    Facts(
        title="Training",
        rows=(
            ("sequences of a step", "global_batch"),
            ("tokens of a sequence", "seq_len"),
            ("best by", "objective"),
        ),
    ),
    Table(
        title="The best layout of each cluster, the best cluster first",
        path="offers",
        columns=(
            *CLUSTER,
            ("GPUs", "n_ranks"),
            *((word, f"plan/{path}") for word, path in LAYOUT),
            ("step", "plan/duration_s"),
            *((word, f"plan/{path}") for word, path in INTERVAL),
            ("tokens/s", "tokens_per_s"),
            ("MFU", "plan/mfu"),
            ("memory left", "plan/headroom_bytes"),
            ("tie", "tie"),
            ("on the front", "front"),
            ("no plan", "why_not"),
        ),
    ),
    Table(
        title="10^12 tokens; ratios to the first given that has a plan",
        path="offers",
        columns=(
            *CLUSTER,
            ("time", "trillion_tokens_s"),
            ("from (80 %)", "trillion_tokens_interval_s/0"),
            ("to (80 %)", "trillion_tokens_interval_s/1"),
            ("of the first", "against/time_ratio"),
            ("a tie", "against/time_tie"),
            ("USD", "usd_per_trillion_tokens"),
            ("from (80 %)", "usd_per_trillion_tokens_interval/0"),
            ("to (80 %)", "usd_per_trillion_tokens_interval/1"),
            ("of the first", "against/cost_ratio"),
            ("a tie", "against/cost_tie"),
            ("USD per GPU hour", "price/usd_per_gpu_hour"),
            ("price from", "price/source"),
            ("on", "price/date"),
        ),
    ),
)


def parts(data: Mapping[str, Any]) -> tuple[Part, ...]:
    """All parts; of a training what makes the difference, a table a cluster."""
    if "offers" not in data:
        return PARTS
    found = list(TRAINING)
    for index, offer in enumerate(data["offers"]):
        number, name = offer["number"], offer["cluster"]
        first = (offer["against"] or {}).get("number")
        found += [
            Table(
                title=f"What makes the difference of {number} ({name}) to {first}",
                path=f"offers/{index}/against/causes",
                columns=(
                    ("cause", "cause"), ("time of 10^12 tokens", "duration_s"), ("USD", "cost_usd"),
                ),
            ),
            Lines(title=f"Assumptions and doubts: {number}", path=f"offers/{index}/notes"),
        ]  # fmt: skip
    return tuple(found)
