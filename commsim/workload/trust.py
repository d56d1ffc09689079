"""How far a step's prediction may be trusted: the left-out residuals of published steps."""

from __future__ import annotations

import math
from functools import lru_cache

from commsim.cost.profile import Profile
from commsim.topology.cluster import Cluster
from commsim.units import Seconds
from commsim.workload import compute
from commsim.workload.frameworks import framework
from commsim.workload.layout import Layout

STRANGE = 1.5
"""How much wider, in ln, the interval is for each tag that no step was fitted to."""

Tags = tuple[tuple[str, str], ...]


@lru_cache(maxsize=1 << 16)
def tags_of(cluster: Cluster, layout: Layout) -> Tags:
    """What a profile's constants may differ by: the GPU's generation, whose kernels run."""
    generation = compute.device(cluster.gpu).generation
    return (
        ("generation", generation), ("stack", framework(layout).stack),
        ("framework", layout.framework),
    )  # fmt: skip


def interval(duration: Seconds, profile: Profile, tags: Tags) -> tuple[Seconds, Seconds]:
    """(low, high) s, the central 80 %."""
    spread = profile.spreads["all"]
    strange = sum(tag not in profile.fitted.get(kind, ()) for kind, tag in tags)
    wide = STRANGE**strange
    return duration * math.exp(spread.low * wide), duration * math.exp(spread.high * wide)
