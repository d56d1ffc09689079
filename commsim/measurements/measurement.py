"""What was measured: one collective, how long it took, and where that is written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass

from commsim.collectives.collective import Collective, bus_factor
from commsim.errors import CollectiveError
from commsim.libraries.library import Library
from commsim.topology.cluster import Cluster
from commsim.units import BytesPerSecond, Seconds

Provenance = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One collective's measured duration, s; what it ran on, as far as that is known.

    `n_ranks` is found from the collective's ranks or the cluster if it is not given. `wrong` counts
    the elements that came out wrong (None: not checked). `provenance` says where the figure comes
    from (file, line, format, ...), in pairs; a mapping is taken too. `samples` are the durations of
    single runs, s, where `duration` sums them up. Raises CollectiveError.

    >>> collective = Collective("all_reduce", nbytes=1 << 30)
    >>> Measurement(collective, duration=1e-2, n_ranks=8).bus_bandwidth  # 2 * 7/8 * 2^30 / 0.01
    187904819200.0
    """

    collective: Collective
    _: KW_ONLY
    duration: Seconds
    cluster: Cluster | None = None
    library: Library | None = None
    n_ranks: int = 0
    nodes: int | None = None
    in_place: bool = False
    wrong: int | None = None
    provenance: Provenance = ()
    samples: tuple[Seconds, ...] = ()

    def __post_init__(self) -> None:
        if not (0 < self.duration < math.inf):
            raise CollectiveError(
                f"measurement: duration: expected seconds > 0, got {self.duration!r}"
            )
        if self.n_ranks == 0:
            object.__setattr__(self, "n_ranks", _ranks(self.collective, self.cluster))
        if self.n_ranks < 2:
            raise CollectiveError(f"measurement: n_ranks: expected 2 or more, got {self.n_ranks}")
        if type(self.provenance) is not tuple:
            object.__setattr__(self, "provenance", _pairs(self.provenance))
        if self.samples:
            object.__setattr__(self, "samples", tuple(float(s) for s in self.samples))
            if not all(0 < sample < math.inf for sample in self.samples):
                raise CollectiveError("measurement: samples: expected seconds > 0 in each")

    @property
    def algorithm_bandwidth(self) -> BytesPerSecond:
        """Bytes/s: the size by the duration, nccl-tests' algbw."""
        return self.collective.nbytes / self.duration

    @property
    def bus_bandwidth(self) -> BytesPerSecond:
        """Bytes/s: the algorithm bandwidth times the bus factor, nccl-tests' busbw."""
        factor = bus_factor(self.collective.operation, self.n_ranks)
        return self.algorithm_bandwidth * factor


def _ranks(collective: Collective, cluster: Cluster | None) -> int:
    if collective.ranks is not None:
        return len(collective.ranks)
    if cluster is not None:
        return cluster.n_ranks
    raise CollectiveError(
        "measurement: n_ranks: expected it, or a cluster, or a collective with ranks; got none"
    )


def _pairs(given: Mapping[str, object] | Iterable[tuple[str, object]]) -> Provenance:
    pairs = given.items() if isinstance(given, Mapping) else given
    return tuple((str(key), str(value)) for key, value in pairs)
