"""From measurements and the cluster as it should be to what may be wrong with it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from commsim.collectives.collective import Collective
from commsim.cost.profile import Profile, shipped
from commsim.diagnosis.alter import env_of, with_env
from commsim.diagnosis.evidence import Clue, Evidence, gather
from commsim.diagnosis.fault import Fault, Setup, Variant, faults, healthy, variants
from commsim.diagnosis.findings import Compared, Findings, Hypothesis
from commsim.diagnosis.noise import Array, log_likelihood
from commsim.errors import CommsimError, DiagnosisError
from commsim.libraries.library import Library
from commsim.libraries.lookup import library as find_library
from commsim.measurements.measurement import Measurement
from commsim.measurements.nccl_log import NcclLog
from commsim.prediction import PROFILES, predict
from commsim.topology.cluster import Cluster
from commsim.topology.node import NodeTopology
from commsim.units import format_size

WELL = 0.6
"""Probability before any measurement that a machine is healthy: an assumption; who asks has a
reason."""
VISIBLE = 0.02
"""ln of a duration by which a fault must change some point to be told from health."""
MATERIAL = 0.1
"""ln by which measured must pass expected at some point before a machine is called sick."""

Text = str | os.PathLike[str]


def diagnose(
    measurements: Iterable[Measurement],
    cluster: Cluster,
    *,
    library: Library | None = None,
    nccl_log: NcclLog | Text | None = None,
    topology: NodeTopology | Text | None = None,
    profile: Profile | Text | None = None,
) -> Findings:
    """Whether measured durations are those of a healthy machine, and which faults explain them.

    cluster: as it should be. library: None is that of the measurements, else the cluster's.
    nccl_log, topology: evidence, as a path or already read; settings in the log that are no fault
    by themselves are taken as meant. The curve is predicted again under
    every fault of `faults/`; p(cause | curve) by Bayes over the ways in which it may show, with
    noise as wide as the profile's spread on machines that it was not fitted to. A point that is
    faster than expected counts as expected. Ignored: two faults at once. Raises DiagnosisError
    where there is nothing to compare, and what prediction raises.

    >>> from commsim.topology.load import load_cluster
    >>> machine = load_cluster("dgx-h100")
    >>> asked = Collective("all_reduce", nbytes=1 << 30)
    >>> diagnose([Measurement(asked, duration=4.4e-3, cluster=machine)], machine).healthy
    True
    """
    found = list(measurements)
    library = library or next((m.library for m in found if m.library), None)
    library = library or find_library(cluster.default_library)
    if profile is None:
        profile = shipped(PROFILES[library.name])
    elif not isinstance(profile, Profile):
        profile = Profile.load(Path(profile))
    evidence = gather(nccl_log, topology, env_of(library))
    owned = frozenset().union(*(fault.settings for fault in faults()))
    meant = {name: value for name, value in evidence.settings if name not in owned}
    if meant and library.name in ("nccl", "rccl"):
        library = with_env(library, meant)
    setup = Setup(cluster=cluster, library=library, profile=profile)
    notes = tuple(f"{name}={value}, which the log shows, is taken as meant"
                  for name, value in meant.items())  # fmt: skip
    return _Examination(setup, _curves(found, setup), evidence, notes).findings()


@dataclass(frozen=True, kw_only=True, eq=False)
class _Curve:
    """Points of one operation and group, by size; doubts: where the model is out of its depth."""

    points: tuple[Compared, ...]
    doubts: tuple[str, ...]
    measured: Array
    expected: Array
    octaves: Array


def _curves(found: Sequence[Measurement], setup: Setup) -> tuple[_Curve, ...]:
    """The measurements by operation and group, by size; repeats, in place or not, as their median.

    In-place figures count where a size has no other: predictions are of out-of-place runs.
    """
    groups: dict[tuple[object, ...], dict[Collective, list[Measurement]]] = {}
    for m in found:
        c = m.collective
        if c.ranks is None and m.n_ranks != setup.cluster.n_ranks:
            raise DiagnosisError(
                f"measurements: expected {setup.cluster.n_ranks} ranks, those of "
                f"{setup.cluster.name} with {setup.cluster.nodes} nodes, got {m.n_ranks}; state "
                "the nodes that took part"
            )
        key = (c.operation, c.dtype, c.ranks, c.root, c.reduce_op)
        groups.setdefault(key, {}).setdefault(c, []).append(m)
    if not groups:
        raise DiagnosisError(
            "measurements: expected one at least, got none; pass those of read_measurements"
        )
    return tuple(_curve(group, setup) for group in groups.values())


def _curve(group: dict[Collective, list[Measurement]], setup: Setup) -> _Curve:
    points, doubts = [], dict[str, None]()
    for collective in sorted(group, key=lambda c: c.nbytes):
        repeats = group[collective]
        outside = [m.duration for m in repeats if not m.in_place]
        p = predict(collective, setup.cluster, setup.library, setup.profile)
        doubts.update(dict.fromkeys(p.cost.extrapolated))
        low, high = p.interval
        points.append(
            Compared(
                collective=collective, n_ranks=p.n_ranks, expected=p.duration, low=low, high=high,
                measured=median(outside or [m.duration for m in repeats]),
            )
        )  # fmt: skip
    return _Curve(
        points=tuple(points),
        doubts=tuple(doubts),
        measured=np.array([p.measured for p in points]),
        expected=np.array([p.expected for p in points]),
        octaves=np.log2([max(p.collective.nbytes, 1) for p in points]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Explained:
    """A curve predicted under one variant, and ln of the measurements' density under it."""

    variant: Variant
    durations: tuple[float, ...]
    log_likelihood: float


@dataclass(frozen=True, slots=True)
class _Examination:
    setup: Setup
    curves: tuple[_Curve, ...]
    evidence: Evidence
    notes: tuple[str, ...]

    def findings(self) -> Findings:
        well = self.explained(healthy(self.setup))
        assert well is not None  # the curves were predicted so already
        points = tuple(point for curve in self.curves for point in curve.points)
        doubts = dict.fromkeys(doubt for curve in self.curves for doubt in curve.doubts)
        weights: dict[Fault, float] = {}
        best: dict[Fault, _Explained] = {}
        clues: dict[Fault, tuple[Clue, ...]] = {}
        untold = []
        for fault in faults():
            clues[fault] = tuple(fault.clues(self.evidence, self.setup))
            ways = [e for v in variants(fault, self.setup) if (e := self.explained(v))]
            ways = [e for e in ways if _visible(e.durations, well.durations)]
            if not ways:
                untold.append(fault.cause)
                continue
            best[fault] = max(ways, key=lambda e: e.log_likelihood + math.log(e.variant.share))
            weights[fault] = math.log(fault.prior) + _sum_of_logs(
                [e.log_likelihood + math.log(e.variant.share) for e in ways]
            )
        total = math.log(sum(fault.prior for fault in weights)) if weights else 0.0
        # The curve alone says whether the machine is sick, clues only from what.
        sick = _sum_of_logs(list(weights.values())) - total + math.log(1 - WELL)
        fine = well.log_likelihood + math.log(WELL)
        likelihood = 1 / (1 + math.exp(min(sick - fine, 700.0)))
        slower = max(math.log(point.slower) for point in points)
        is_well = likelihood >= 0.5 or slower < MATERIAL
        for fault in weights:
            weights[fault] += sum(math.log(clue.factor) for clue in clues[fault])
        whole = _sum_of_logs(list(weights.values()))
        ranked = sorted(weights, key=lambda fault: -weights[fault])
        return Findings(
            healthy=is_well,
            likelihood=likelihood,
            summary=_summary(points),
            hypotheses=tuple(
                Hypothesis(
                    cause=fault.cause, likelihood=math.exp(weights[fault] - whole),
                    what=fault.what, detail=best[fault].variant.detail,
                    evidence=(
                        _fit(points, best[fault].durations), *(c.text for c in clues[fault])
                    ),
                    check=fault.check, fix=fault.fix, curve=best[fault].durations,
                )
                for fault in ranked
            ),
            points=points,
            untold=tuple(untold),
            notes=(*self.setup.cluster.notes, *self.notes, *doubts),
        )  # fmt: skip

    def explained(self, variant: Variant) -> _Explained | None:
        """The curves under a variant; None where it leaves no way to run one of them."""
        durations: list[float] = []
        total = 0.0
        for curve in self.curves:
            try:
                costs = [variant.cost(point.collective) for point in curve.points]
            except CommsimError:
                return None
            times = np.array([cost.duration for cost in costs])
            durations += times.tolist()
            # A point faster than expected says only that nothing is slow there.
            measured = np.where(
                curve.measured < curve.expected,
                np.minimum(times, curve.expected),
                curve.measured,
            )
            total += log_likelihood(
                measured, times, np.array([cost.spread for cost in costs]), curve.octaves,
                healthy=curve.expected, slopes=np.array([cost.slopes for cost in costs]),
                scatter=variant.scatter,
            )  # fmt: skip
        return _Explained(variant=variant, durations=tuple(durations), log_likelihood=total)


def _visible(durations: Sequence[float], well: Sequence[float]) -> bool:
    """Whether a fault changes what was measured."""
    return any(math.log(d / w) > VISIBLE for d, w in zip(durations, well, strict=True))


def _sum_of_logs(logs: Sequence[float]) -> float:
    """ln of the sum of exp."""
    most = max(logs, default=-math.inf)
    return most + math.log(sum(math.exp(x - most) for x in logs)) if logs else most


def _summary(points: Sequence[Compared]) -> str:
    """`12 points: median 1.02 x the expected time, worst 1.30 x (all_reduce of 1 MiB)`."""
    worst = max(points, key=lambda p: p.slower)
    middle = median(p.slower for p in points)
    plural = "s" if len(points) > 1 else ""
    return (
        f"{len(points)} point{plural}: median {middle:.2f} x the expected time, worst "
        f"{worst.slower:.2f} x ({worst.collective.operation} of "
        f"{format_size(worst.collective.nbytes)})"
    )


def _fit(points: Sequence[Compared], durations: Sequence[float]) -> str:
    """How far measured lies from what the fault predicts, as a factor up or down."""
    off = [abs(math.log(p.measured / d)) for p, d in zip(points, durations, strict=True)]
    was = [abs(math.log(p.slower)) for p in points]
    return (
        f"the measured times lie within a factor {math.exp(median(off)):.2f} of this fault's "
        f"(median), {math.exp(median(was)):.2f} of a healthy machine's"
    )
