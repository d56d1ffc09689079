"""Measurements that are made up: a machine that differs from the shipped profile in known ways."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from commsim.collectives.collective import Collective
from commsim.cost.profile import Profile, shipped
from commsim.libraries.library import Library
from commsim.libraries.lookup import library as find_library
from commsim.measurements.measurement import Measurement
from commsim.prediction import PROFILES, predict
from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster

SIZES = tuple(8 * 4**step for step in range(14))
"""8 B to 512 MiB."""


@lru_cache
def cluster(name: str, nodes: int = 1) -> Cluster:
    return load_cluster(name, nodes=nodes)


def changed(base: Profile, factors: Mapping[str, float]) -> Profile:
    """The profile with some constants times a factor."""
    constants = {
        name: replace(c, value=c.value * factors.get(name, 1.0))
        for name, c in base.constants.items()
    }
    return Profile(
        name="changed", source="made up", constants=constants, spreads=base.spreads,
        fitted=base.fitted,
    )  # fmt: skip


def measured(
    machine: Cluster,
    truth: Profile | None = None,
    *,
    operation: str = "all_reduce",
    sizes: Iterable[int] = SIZES,
    library: Library | None = None,
    ranks: tuple[int, ...] | None = None,
    bent: Mapping[int, float] | None = None,
) -> list[Measurement]:
    """What the machine of profile `truth` takes; `bent`: factors at some sizes."""
    library = library or find_library(machine.default_library)
    truth = truth or shipped(PROFILES[library.name])
    found = []
    for line, nbytes in enumerate(sizes, 1):
        asked = Collective(operation, nbytes=nbytes, ranks=ranks)
        duration = predict(asked, machine, library, truth).duration
        found.append(
            Measurement(
                asked, duration=duration * (bent or {}).get(nbytes, 1.0), cluster=machine,
                library=library, provenance={"file": "made-up.log", "line": line},
            )
        )  # fmt: skip
    return found
