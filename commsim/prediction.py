"""The straight line: a collective on a cluster, through a library's choice, to a duration."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from commsim.collectives.collective import Collective, bus_factor
from commsim.cost import host as host_cost
from commsim.cost import nccl as nccl_cost
from commsim.cost.cost import Cost, Pace
from commsim.cost.profile import Profile, shipped
from commsim.errors import CollectiveError
from commsim.libraries.library import Choice, Library
from commsim.libraries.lookup import library as find_library
from commsim.topology.cluster import Cluster
from commsim.topology.placement import place
from commsim.topology.reachable import check_reachable
from commsim.units import BytesPerSecond, Seconds

COSTS: dict[str, Callable[..., Cost]] = {
    "nccl": nccl_cost.cost,
    "rccl": nccl_cost.cost,
    "gloo": host_cost.cost,
    "mpi": host_cost.cost,
}
PACES: dict[str, Callable[..., Pace]] = {
    "nccl": nccl_cost.pace,
    "rccl": nccl_cost.pace,
    "gloo": host_cost.pace,
    "mpi": host_cost.pace,
}
PROFILES = {"nccl": "nccl", "rccl": "nccl", "gloo": "gloo", "mpi": "mpi"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One candidate.

    estimate: what the library believes (s). duration: what commsim predicts (s, inf if ruled out).
    reason: why it is ruled out.
    """

    algorithm: str
    protocol: str
    channels: int
    duration: Seconds
    estimate: Seconds
    available: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """How long one operation takes, and why.

    duration: s, what nccl-tests prints as out-of-place time. interval: (low, high) s, the central
    80 %. breakdown: named parts in s that sum to the duration. bottleneck: the resource that binds.
    reasons: why the library chose as it did. notes: every assumption and doubt, one sentence each.
    """

    collective: Collective
    cluster: Cluster
    library: Library
    profile: Profile
    n_ranks: int
    cost: Cost
    choice: Choice

    @property
    def duration(self) -> Seconds:
        """s, what nccl-tests prints as out-of-place time."""
        return self.cost.duration

    @property
    def interval(self) -> tuple[Seconds, Seconds]:
        """(low, high) in s, the central 80 %."""
        low, high = self.cost.spread
        return self.cost.duration * math.exp(low), self.cost.duration * math.exp(high)

    @property
    def algorithm(self) -> str:
        """ring, tree, nvls, nvls_tree, collnet_direct, collnet_chain, pat, p2p ..."""
        return self.choice.chosen.algorithm

    @property
    def protocol(self) -> str:
        """LL, LL128 or Simple; TCP for host libraries."""
        return self.choice.chosen.protocol

    @property
    def channels(self) -> int:
        """Channels (thread blocks) in use."""
        return self.choice.chosen.channels

    @property
    def bottleneck(self) -> str:
        """The resource that binds, with its rate."""
        return self.cost.bottleneck

    @property
    def breakdown(self) -> dict[str, Seconds]:
        """Named parts in s that sum to the duration."""
        return dict(self.cost.breakdown)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the library chose as it did."""
        return self.choice.reasons

    @property
    def notes(self) -> tuple[str, ...]:
        """Every default, assumption and doubt behind the figure, one sentence each."""
        return (
            *self.cluster.notes, *self.choice.notes, *self.cost.notes, *self.cost.extrapolated
        )  # fmt: skip

    @property
    def algorithm_bandwidth(self) -> BytesPerSecond:
        """Size over duration, bytes/s (nccl-tests' algbw)."""
        return self.collective.nbytes / self.cost.duration

    @property
    def bus_bandwidth(self) -> BytesPerSecond:
        """Algorithm bandwidth times the operation's bus factor, bytes/s (nccl-tests' busbw)."""
        return self.algorithm_bandwidth * bus_factor(self.collective.operation, self.n_ranks)

    @cached_property
    def alternatives(self) -> tuple[Alternative, ...]:
        """Every candidate, in the library's order."""
        price = COSTS[self.library.name]
        found = []
        for c in self.choice.candidates:
            duration = math.inf
            if c.available:
                duration = price(
                    self.collective, self.cluster, c, self.choice.facts, self.profile
                ).duration
            found.append(
                Alternative(
                    algorithm=c.algorithm,
                    protocol=c.protocol,
                    channels=c.channels,
                    duration=duration,
                    estimate=c.estimate,
                    available=c.available,
                    reason=c.reason,
                )
            )
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able figures, keys with a unit suffix; None where no finite number exists."""
        c = self.collective
        low, high = self.interval
        return {
            "cluster": self.cluster.name,
            "nodes": self.cluster.nodes,
            "operation": c.operation,
            "size_bytes": c.nbytes,
            "dtype": c.dtype,
            "n_ranks": self.n_ranks,
            "ranks": list(c.ranks) if c.ranks is not None else None,
            "root": c.root,
            "library": f"{self.library.name}@{self.library.version}",
            "duration_s": self.duration,
            "interval_s": [low, high],
            "algorithm": self.algorithm,
            "protocol": self.protocol,
            "channels": self.channels,
            "algorithm_bandwidth_bytes_per_s": self.algorithm_bandwidth,
            "bus_bandwidth_bytes_per_s": self.bus_bandwidth,
            "bottleneck": self.bottleneck,
            "breakdown_s": self.breakdown,
            "reasons": list(self.reasons),
            "notes": list(self.notes),
            "alternatives": [
                {
                    "algorithm": a.algorithm,
                    "protocol": a.protocol,
                    "channels": a.channels,
                    "duration_s": _finite(a.duration),
                    "estimate_s": _finite(a.estimate),
                    "available": a.available,
                    "reason": a.reason,
                }
                for a in self.alternatives
            ],
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def predict(
    collective: Collective,
    cluster: Cluster,
    library: Library | None = None,
    profile: Profile | str | Path | None = None,
) -> Prediction:
    """How long `collective` takes on `cluster`, in s, with its interval, algorithm, bottleneck.

    library: None is the cluster's own default. profile: a Profile or its file; None is the
    cluster's own, else the shipped one. Raises CollectiveError for a rank or root the cluster does
    not have, LibraryError for settings the library refuses.

    >>> from commsim.topology.load import load_cluster
    >>> p = predict(Collective("all_reduce", nbytes=1 << 30), load_cluster("dgx-h100"))
    >>> p.algorithm, p.interval[0] < p.duration < p.interval[1]
    ('nvls', True)
    """
    if library is None:
        library = find_library(cluster.default_library)
    if profile is None and isinstance(cluster.profile, Profile):
        profile = cluster.profile
    if profile is None:
        profile = shipped(PROFILES[library.name])
    elif not isinstance(profile, Profile):
        profile = Profile.load(profile)
    placement = place(cluster, collective.ranks)
    collective.check_splits(placement.n)
    check_reachable(cluster, collective.ranks)
    if collective.root is not None:
        within = range(cluster.n_ranks) if collective.ranks is None else collective.ranks
        if collective.root not in within:
            raise CollectiveError(
                f"{collective.operation}: root: {collective.root} is not a rank of the group; "
                f"name one of its {placement.n} ranks"
            )
    choice = library.choose(collective, cluster)
    price = COSTS[library.name](collective, cluster, choice.chosen, choice.facts, profile)
    return Prediction(
        collective=collective, cluster=cluster, library=library, profile=profile,
        n_ranks=placement.n, cost=price, choice=choice,
    )  # fmt: skip
