"""How far a step's prediction may be trusted: the left-out residuals of published steps."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from commsim.cost.profile import Profile
from commsim.topology.cluster import Cluster
from commsim.units import Seconds
from commsim.workload import compute
from commsim.workload.frameworks import framework
from commsim.workload.layout import Layout

SHIPPED = Path(__file__).with_name("profiles") / "training.toml"
OF_COMPUTE = "matmul"
"""A constant that only profiles of compute have."""
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


def settle(cluster: Cluster, profile: Profile | str | Path | None) -> tuple[Cluster, Profile]:
    """The cluster and the constants of compute to take.

    profile: of compute; or a calibration of collectives, which the cluster then carries while
    compute takes the shipped constants.
    """
    if profile is None:
        return cluster, shipped()
    if not isinstance(profile, Profile):
        profile = Profile.load(profile)
    if OF_COMPUTE in profile.constants:
        return cluster, profile
    return replace(cluster, profile=profile), shipped()


@lru_cache(maxsize=1)
def shipped() -> Profile:
    """The constants of compute that come with commsim."""
    return Profile.load(SHIPPED)


def interval(duration: Seconds, profile: Profile, tags: Tags) -> tuple[Seconds, Seconds]:
    """(low, high) s, the central 80 %."""
    spread = profile.spreads["all"]
    strange = sum(tag not in profile.fitted.get(kind, ()) for kind, tag in tags)
    wide = STRANGE**strange
    return duration * math.exp(spread.low * wide), duration * math.exp(spread.high * wide)
