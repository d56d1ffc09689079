"""The straight line: a collective on a cluster, through a library's choice, to a duration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from commsim.collectives.collective import Collective
from commsim.libraries.library import Library
from commsim.topology.cluster import Cluster
from commsim.units import BytesPerSecond, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One candidate. estimate: what the library believes (s); duration: what commsim predicts (s, inf if ruled
    out); reason: why it is ruled out."""

    algorithm: str
    protocol: str
    channels: int
    duration: Seconds
    estimate: Seconds
    available: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """How long one operation takes, and why.

    duration: s, what nccl-tests prints as out-of-place time. interval: (low, high) s, the central 80 %.
    breakdown: named parts in s that sum to the duration. bottleneck: the resource that binds.
    """

    collective: Collective
    cluster: Cluster
    library: Library
    n_ranks: int
    duration: Seconds
    interval: tuple[Seconds, Seconds]
    algorithm: str
    protocol: str
    channels: int
    bottleneck: str
    breakdown: dict[str, Seconds]
    notes: tuple[str, ...]
    reasons: tuple[str, ...]
    alternatives: tuple[Alternative, ...]

    @property
    def algorithm_bandwidth(self) -> BytesPerSecond:
        """Size over duration, bytes/s (nccl-tests' algbw)."""
        raise NotImplementedError

    @property
    def bus_bandwidth(self) -> BytesPerSecond:
        """Algorithm bandwidth times the operation's bus factor, bytes/s (nccl-tests' busbw)."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able figures, keys with a unit suffix."""
        raise NotImplementedError


def predict(
    collective: Collective,
    cluster: Cluster,
    library: Library | None = None,
    profile: Any = None,
) -> Prediction:
    """How long `collective` takes on `cluster`, with interval, algorithm, bottleneck and alternatives."""
    raise NotImplementedError
