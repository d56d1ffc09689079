"""The straight line at its other fidelity: every transfer played on the links of the cluster.

    collective, cluster -> library's choice -> schedule -> laid on links -> played -> Timeline

The pace of an operation (launch, hops, what protocols leave of a link) comes from the profile. How
its software and its bytes overlap inside one channel is below a schedule's grain; so a library's
operation is first played alone on the ideal form of its cluster, and the pace is set so that this
takes what the closed form says. Played on the real cluster, with others, late ranks or broken
links, every difference is contention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from commsim.collectives.algorithm import Algorithm
from commsim.collectives.algorithms.send_recv import SendRecv
from commsim.collectives.catalogue import algorithm as find_algorithm
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import Schedule
from commsim.cost.cost import Pace
from commsim.cost.profile import Profile
from commsim.engine import compiled
from commsim.engine.cluster_network import ClusterNetwork
from commsim.engine.conditions import Conditions, Traffic
from commsim.engine.network import Floats, Laid, lay
from commsim.engine.plan import Part, Times, make_plan
from commsim.engine.timeline import Played, Timeline
from commsim.errors import CollectiveError, ConditionError
from commsim.libraries.carry_out import carry_out
from commsim.libraries.library import Library
from commsim.prediction import PACES, Prediction, predict
from commsim.topology.cluster import Cluster
from commsim.topology.placement import place
from commsim.units import Seconds

CLOSE = 1e-3
"""How near the closed form an operation alone comes, as a share of its time."""
TRIES = 8

Asked = Collective | tuple[Collective, Seconds]
Watch = Callable[[int, int, Seconds], None]


@dataclass(frozen=True, kw_only=True)
class _Job:
    """One collective before it is played: laid on the links at its pace."""

    collective: Collective
    start: Seconds
    ranks: tuple[int, ...]
    laid: Laid
    launch: Seconds
    algorithm: str
    protocol: str
    multiplicity: int
    notes: tuple[str, ...]


def simulate(
    collective: Asked | Sequence[Asked],
    cluster: Cluster,
    library: Library | None = None,
    profile: Profile | str | Path | None = None,
    *,
    algorithm: str | Algorithm | Schedule | None = None,
    channels: int = 1,
    routing: str = "adaptive",
    seed: int = 0,
    conditions: Conditions | None = None,
    fold: bool = True,
    watch: Watch | None = None,
) -> Timeline:
    """When every transfer of one or more collectives begins and ends on the cluster's links.

    collective: one, or several as (collective, start in s): all share the network. algorithm: None
    plays what the library chooses at the pace of the closed form; a name of the catalogue, an
    Algorithm or a Schedule plays that on `channels` channels, with the profile's hops. routing:
    "adaptive" spreads traffic over equal ways, "ecmp" hashes each pair of ranks onto one by `seed`.
    fold: play equal channels, and equal nodes where nothing tells them apart, as one. watch: called
    with (transfers done, of how many, s simulated); what it raises ends the simulation.

    Raises what `predict` raises, and ConditionError for conditions on ranks that do not exist.
    """
    conditions = conditions or Conditions()
    asked = [collective] if isinstance(collective, Collective | tuple) else list(collective)
    if not asked:
        raise CollectiveError("simulate: no collective given; name at least one")
    rules = _Rules(
        cluster=cluster, library=library, profile=profile, algorithm=algorithm, channels=channels,
        routing=routing, seed=seed, fold=fold and conditions.healthy and len(asked) == 1,
    )  # fmt: skip
    jobs = [rules.job(*(a if isinstance(a, tuple) else (a, 0.0))) for a in asked]
    return _play(jobs, rules, conditions, watch)


@dataclass(frozen=True, kw_only=True)
class _Rules:
    """How every collective of a simulation is laid out."""

    cluster: Cluster
    library: Library | None
    profile: Profile | str | Path | None
    algorithm: str | Algorithm | Schedule | None
    channels: int
    routing: str
    seed: int
    fold: bool

    def network(self, ranks: tuple[int, ...] | None) -> ClusterNetwork:
        """The cluster's links with the ways of a group; link numbers are the same for all."""
        return ClusterNetwork(
            cluster=self.cluster, ranks=ranks, routing=self.routing, seed=self.seed
        )

    def job(self, collective: Collective, start: Seconds) -> _Job:
        """A collective on the links at its pace."""
        if not 0 <= start < np.inf:
            raise ConditionError(
                f"{collective.operation}: start: expected 0 s or more, got {start}"
            )
        p = predict(collective, self.cluster, self.library, self.profile)
        pace = PACES[p.library.name](
            collective, self.cluster, p.choice.chosen, p.choice.facts, p.profile
        )
        ranks = collective.ranks or tuple(range(p.n_ranks))
        network, notes = self.network(collective.ranks), list(p.notes)
        if self.algorithm is None:
            carried = carry_out(collective, p.choice, fold=self.fold)
            schedule = carried.algorithm.schedule(collective, p.n_ranks, carried.channels)
            laid = _tuned(schedule, network, pace)
            name, protocol, multiplicity = p.algorithm, p.protocol, carried.multiplicity
            if multiplicity > 1:
                notes.append(f"folded: {multiplicity} equal channels are played as one")
        else:
            schedule = _own(self.algorithm, collective, p.n_ranks, self.channels)
            laid = _paced(lay(schedule, network), network, pace, 1.0, 1.0)
            name = self.algorithm if isinstance(self.algorithm, str) else (
                type(self.algorithm).__name__.lower()
            )
            protocol, multiplicity = p.protocol, 1
        return _Job(
            collective=collective, start=start, ranks=ranks, laid=laid, launch=pace.launch,
            algorithm=name, protocol=protocol, multiplicity=multiplicity, notes=tuple(notes),
        )  # fmt: skip


def _own(
    algorithm: str | Algorithm | Schedule, collective: Collective, n: int, channels: int
) -> Schedule:
    """The schedule of an algorithm of the caller's choice."""
    if isinstance(algorithm, Schedule):
        if algorithm.chunks.n != n:
            raise CollectiveError(
                f"{collective.operation}: the schedule is for {algorithm.chunks.n} ranks, the group "
                f"has {n}"
            )
        return algorithm
    chosen = find_algorithm(algorithm) if isinstance(algorithm, str) else algorithm
    return chosen.schedule(collective, n, channels)


# ---- pace ----


def _paced(
    laid: Laid, network: ClusterNetwork, pace: Pace, stretch: float, hops: float
) -> Laid:
    """The ways with what software adds: bytes take `stretch` times their time on a link of which
    data gets its share; each hop takes `hops` times the profile's.
    """
    ways = laid.ways
    over_network = network.over_network[ways.crossing]
    share = np.where(over_network, pace.net_share, pace.local_share)
    crossed = np.diff(ways.start) > 0
    far = np.zeros(len(ways), dtype=np.bool_)
    far[np.repeat(np.arange(len(ways)), np.diff(ways.start))[over_network]] = True
    hop = np.where(far, pace.net_hop, pace.local_hop) * crossed * hops
    return replace(
        laid, ways=replace(ways, weight=ways.weight * stretch / share, latency=hop)
    )


def _tuned(schedule: Schedule, network: ClusterNetwork, pace: Pace) -> Laid:
    """The schedule at the pace with which it takes, alone on the ideal cluster, what it should."""
    real, ideal = lay(schedule, network), network.ideal
    alone = real if ideal is network else lay(schedule, ideal)
    body = pace.duration - pace.launch

    def time(stretch: float, hops: float) -> Seconds:
        paced = _paced(alone, ideal, pace, stretch, hops)
        return float(_alone(paced, ideal).arrived.max(initial=0.0))

    bytes_alone = time(1.0, 0.0)
    stretch = pace.transfer / bytes_alone if bytes_alone > 0 and pace.transfer > 0 else 1.0
    low, at_low = 0.0, bytes_alone * stretch
    if at_low >= body:  # the closed form hides all hops
        return _paced(real, network, pace, stretch * body / at_low if at_low else 1.0, 0.0)
    hops = 1.0
    for _ in range(TRIES):
        found = time(stretch, hops)
        if abs(found - body) <= CLOSE * body or found <= at_low:
            break
        # The time grows with the hops' convexly: a secant from below does not overshoot for long.
        hops, low, at_low = (
            low + (body - at_low) * (hops - low) / (found - at_low),
            *((hops, found) if found < body else (low, at_low)),
        )
    return _paced(real, network, pace, stretch, hops)


def _alone(laid: Laid, network: ClusterNetwork) -> Times:
    vertices = laid.schedule.vertices
    part = Part(laid=laid, start=np.zeros(vertices), death=np.full(vertices, np.inf))
    return compiled.play(make_plan([part], network.capacity))


# ---- playing ----


def _play(
    jobs: Sequence[_Job], rules: _Rules, conditions: Conditions, watch: Watch | None
) -> Timeline:
    _check(conditions, rules.cluster)
    network = rules.network(None)
    parts = [_part(job, conditions, network) for job in jobs]
    others = [_other(t, rules) for t in conditions.traffic]
    changes = [c for fault in conditions.faults for c in fault.changes(network)]
    plan = make_plan([*parts, *others], network.capacity, changes)
    of = len(plan)
    times = compiled.play(plan, None if watch is None else lambda done, now: watch(done, of, now))
    played, first = [], 0
    for job, part in zip(jobs, parts, strict=True):
        last = first + len(job.laid.schedule)
        played.append(
            Played(
                collective=job.collective, ranks=job.ranks, laid=part.laid,
                times=times.of(slice(first, last)), asked=job.start, joined=part.start,
                launch=job.launch, algorithm=job.algorithm, protocol=job.protocol,
                multiplicity=job.multiplicity, notes=job.notes,
            )
        )  # fmt: skip
        first = last
    notes = tuple(dict.fromkeys(note for job in jobs for note in job.notes))
    return Timeline(
        played=tuple(played), network=network, changes=plan.changes, conditions=conditions,
        notes=notes,
    )  # fmt: skip


def _check(conditions: Conditions, cluster: Cluster) -> None:
    for what in ("late", "slow", "deaths"):
        for rank in getattr(conditions, what):
            _check_rank(what, rank, cluster)
    for traffic in conditions.traffic:
        _check_rank("traffic", traffic.source, cluster)
        _check_rank("traffic", traffic.destination, cluster)


def _check_rank(what: str, rank: int, cluster: Cluster) -> None:
    if not 0 <= rank < cluster.n_ranks:
        raise ConditionError(
            f"{what}: rank {rank} does not exist on {cluster.name}; expected 0 .. "
            f"{cluster.n_ranks - 1}"
        )


def _part(job: _Job, conditions: Conditions, network: ClusterNetwork) -> Part:
    """The job under these conditions: who is late, slow or dies, and what jitters."""
    schedule, vertices = job.laid.schedule, job.laid.schedule.vertices
    late, death, slow = np.zeros(vertices), np.full(vertices, np.inf), np.ones(vertices)
    for values, column in (
        (conditions.late, late), (conditions.deaths, death), (conditions.slow, slow)
    ):  # fmt: skip
        for position, rank in enumerate(job.ranks):
            column[position] = values.get(rank, column[position])
    laid, extra = job.laid, None
    if conditions.slow:
        laid = _slowed(laid, slow, network)
    if conditions.jitter is not None:
        extra = conditions.jitter.draw(len(schedule))
    start = job.start + late
    start[: len(job.ranks)] += job.launch * slow[: len(job.ranks)]
    return Part(laid=laid, start=start, death=death, extra=extra)


def _slowed(laid: Laid, slow: Floats, network: ClusterNetwork) -> Laid:
    """Ways of slow ranks: their hops and, at most, their rate go with the slower end."""
    schedule, ways = laid.schedule, laid.ways
    factor = np.ones(len(ways))
    factor[laid.way] = np.maximum(slow[schedule.source], slow[schedule.destination])
    crossed = np.flatnonzero(np.diff(ways.start))
    rate = np.full(len(ways), np.inf)
    rate[crossed] = np.minimum.reduceat(
        network.capacity[ways.crossing] / ways.weight, ways.start[crossed]
    )
    limit = np.where(factor > 1, np.minimum(ways.limit, rate / factor), ways.limit)
    return replace(
        laid,
        ways=replace(
            ways,
            latency=ways.latency * factor,
            overhead=ways.overhead * factor,
            limit=limit,
        ),
    )


def _other(traffic: Traffic, rules: _Rules) -> Part:
    """Other traffic as one transfer."""
    ranks = (traffic.source, traffic.destination)
    message = Collective("send_recv", traffic.nbytes, ranks=ranks, root=traffic.source)
    laid = lay(SendRecv().schedule(message, 2), rules.network(ranks))
    limited = replace(laid.ways, limit=np.full(len(laid.ways), traffic.rate))
    return Part(
        laid=replace(laid, ways=limited),
        start=np.full(2, traffic.start),
        death=np.full(2, np.inf),
    )
