"""From measurements to the points of a fit: one for each question that was asked of a machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from commsim.calibration import host_batches, nccl_batches
from commsim.collectives.collective import Collective
from commsim.cost.calibrated import Case
from commsim.errors import CalibrationError, CommsimError
from commsim.libraries.library import Choice, Library
from commsim.libraries.lookup import library as find_library
from commsim.measurements.measurement import Measurement
from commsim.prediction import PROFILES
from commsim.topology.cluster import Cluster
from commsim.units import Seconds, format_size

FAMILIES: dict[str, Any] = {"nccl": nccl_batches, "gloo": host_batches, "mpi": host_batches}
"""By the name of a library's shipped profile: how its points become batches and cases."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Point:
    """One question and its answers. measured: s, the median of the repeats."""

    collective: Collective
    cluster: Cluster
    library: Library
    choice: Choice
    case: Case
    measurements: tuple[Measurement, ...]
    measured: Seconds

    @property
    def where(self) -> str:
        """file:line of the first measurement."""
        return place(self.measurements[0])

    def __str__(self) -> str:
        c = self.case
        of = f" of {format_size(self.collective.nbytes)}" if self.collective.nbytes else ""
        nodes = "1 node" if c.nodes == 1 else f"{c.nodes} nodes"
        return f"{c.operation}{of} ({self.collective.dtype}), {c.ranks} ranks on {nodes}"


@dataclass(slots=True, eq=False)
class _Asked:
    """Measurements of one question, in place and out of place."""

    out: list[Measurement] = field(default_factory=list)
    inside: list[Measurement] = field(default_factory=list)


def place(measurement: Measurement) -> str:
    """file:line of a measurement; "" where it does not say."""
    known = dict(measurement.provenance)
    return ":".join(known[key] for key in ("file", "line") if key in known)


def family(measurements: Iterable[Measurement]) -> str:
    """The profile that all of these are about: nccl (also RCCL's), gloo or mpi.

    Raises CalibrationError where there is none, or more than one.
    """
    names: dict[str, str] = {}
    for m in measurements:
        name = _library(m).name
        names.setdefault(PROFILES[name], place(m) or name)
    if not names:
        raise CalibrationError(
            "measurements: expected one at least, got none; pass those of read_measurements"
        )
    if len(names) > 1:
        raise CalibrationError(
            "measurements: expected those of one library, got "
            + " and ".join(f"{name} ({where})" for name, where in names.items())
            + "; calibrate a profile for each"
        )
    return next(iter(names))


def points(measurements: Sequence[Measurement], name: str) -> tuple[Point, ...]:
    """A point for each question, repeats as their median, out of place where that was measured.

    Measurements whose result was wrong, and those of no bytes, are passed over. Raises
    CalibrationError for a measurement that names no cluster, or one that its library refuses.
    """
    asked: dict[tuple[Collective, Cluster, Library], _Asked] = {}
    for m in measurements:
        c = m.collective
        if m.wrong or (c.nbytes == 0 and c.operation != "barrier"):
            continue
        key = (c, _cluster(m), _library(m))
        found = asked.setdefault(key, _Asked())
        (found.inside if m.in_place else found.out).append(m)
    return tuple(
        _point(*key, measurements=tuple(found.out or found.inside), name=name)
        for key, found in asked.items()
    )


def _point(
    collective: Collective,
    cluster: Cluster,
    library: Library,
    *,
    measurements: tuple[Measurement, ...],
    name: str,
) -> Point:
    try:
        choice = library.choose(collective, cluster)
        case = FAMILIES[name].case(collective, cluster, choice)
    except CommsimError as error:
        where = place(measurements[0])
        raise CalibrationError(f"{where}: {error}" if where else str(error)) from error
    return Point(
        collective=collective, cluster=cluster, library=library, choice=choice, case=case,
        measurements=measurements, measured=median(m.duration for m in measurements),
    )  # fmt: skip


def _cluster(m: Measurement) -> Cluster:
    if m.cluster is None:
        raise CalibrationError(
            f"{place(m) or 'measurement'}: does not say what it ran on; pass --cluster (in Python: "
            "read_measurements(..., cluster=...))"
        )
    return m.cluster


def _library(m: Measurement) -> Library:
    """The library that ran; the cluster's own where the measurement does not say."""
    return m.library or find_library(_cluster(m).default_library)
