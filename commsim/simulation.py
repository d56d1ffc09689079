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
from numbers import Real
from pathlib import Path

import numpy as np

from commsim.collectives.algorithm import Algorithm
from commsim.collectives.algorithms.send_recv import SendRecv
from commsim.collectives.catalogue import algorithm as find_algorithm
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import Schedule
from commsim.cost.profile import Profile
from commsim.engine import compiled
from commsim.engine.cluster_network import ClusterNetwork
from commsim.engine.conditions import Conditions, LinkFault, Traffic
from commsim.engine.folding import Folded
from commsim.engine.network import Floats, Laid, Network, lay
from commsim.engine.nic_choice import ChosenNics
from commsim.engine.pacing import Tuning, paced, tuned
from commsim.engine.plan import Part, make_plan
from commsim.engine.played import Played
from commsim.engine.timeline import Timeline
from commsim.errors import CollectiveError, ConditionError
from commsim.libraries.carried import Carried
from commsim.libraries.carry_out import carry_out
from commsim.libraries.library import Library
from commsim.prediction import PACES, predict
from commsim.topology.cluster import Cluster
from commsim.topology.node import without_nics
from commsim.units import Seconds

COARSE = 1.03
"""How far a schedule alone may lie above the closed form without a word."""

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
    fold: play equal channels, and equal nodes where nothing tells them apart, as one; by ecmp each
    channel has a way of its own and is played. watch: called with (transfers done, of how many, s
    simulated), with none done while the pace is being found; what it raises ends the simulation.

    Raises what `predict` raises, and ConditionError for conditions on ranks that do not exist.
    """
    conditions = conditions or Conditions()
    asked = _listed(collective)
    if not asked:
        raise CollectiveError("simulate: no collective given; name at least one")
    cluster, conditions, notes = _without_dead_nics(cluster, conditions)
    rules = _Rules(
        cluster=cluster, library=library, profile=profile, algorithm=algorithm, channels=channels,
        routing=routing, seed=seed, fold=fold and routing == "adaptive",
        undisturbed=conditions.healthy and len(asked) == 1, watch=watch,
    )  # fmt: skip
    jobs = [rules.job(*(a if isinstance(a, tuple) else (a, 0.0))) for a in asked]
    return _play(jobs, rules, conditions, watch, notes)


def _listed(asked: Asked | Sequence[Asked]) -> list[Asked]:
    """All that is asked: a pair of a collective and a number is one, with its start."""
    if isinstance(asked, Collective):
        return [asked]
    if isinstance(asked, tuple) and len(asked) == 2 and isinstance(asked[1], Real):
        return [(asked[0], float(asked[1]))]
    return list(asked)


def _without_dead_nics(
    cluster: Cluster, conditions: Conditions
) -> tuple[Cluster, Conditions, tuple[str, ...]]:
    """The cluster without NICs that are dead from the beginning, and the other conditions.

    A library finds out when it starts, and then does without: channels are the same on every
    machine, so a NIC that one machine lacks is left idle on all.
    """
    site, wiring = cluster.site, cluster.wiring
    leaf = {cable.source: cable.target for cable in wiring.cables}
    dead: dict[int, str] = {}
    others = []

    def cuts_off(fault: LinkFault, nic: str) -> bool:
        there = leaf.get(nic, "")
        return any(map(fault.means, (nic, there, f"{nic} -> {there}", f"{there} -> {nic}")))

    for fault in conditions.faults:
        found = [
            i
            for host in range(cluster.nodes if fault.dead else 0)
            for i in range(len(site.nics))
            if cuts_off(fault, site.nic(host, i))
        ]
        dead |= dict.fromkeys(found, fault.link)
        if not found:
            others.append(fault)
    if not dead:
        return cluster, conditions, ()
    node = without_nics(cluster.node, dead)
    notes = tuple(
        f"{why} is dead from the beginning: {site.nics[i]} is not used on any machine"
        for i, why in dead.items()
    )
    return replace(cluster, node=node), replace(conditions, faults=tuple(others)), notes


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
    undisturbed: bool
    watch: Watch | None

    def network(self, ranks: tuple[int, ...] | None) -> ClusterNetwork:
        """The cluster's links with the ways of a group; link numbers are the same for all."""
        return ClusterNetwork(
            cluster=self.cluster, ranks=ranks, routing=self.routing, seed=self.seed
        )

    def _trial(self, of: int) -> Callable[[int, Seconds], None] | None:
        """`watch` while the pace is being found: nothing is done yet."""
        watch = self.watch
        return None if watch is None else lambda done, now: watch(0, of, 0.0)

    @property
    def alike(self) -> bool:
        """Whether nothing tells equal machines apart."""
        regular = self.cluster.fabric.subnet is None and self.cluster.bisection_share >= 1
        return self.fold and self.undisturbed and regular

    @property
    def ideal(self) -> Cluster:
        """The cluster with a fabric that lacks nothing."""
        return replace(self.cluster, fabric=self.cluster.fabric.unlimited)

    def job(self, collective: Collective, start: Seconds) -> _Job:
        """A collective on the links at its pace."""
        if not 0 <= start < np.inf:
            raise ConditionError(
                f"{collective.operation}: start: expected 0 s or more, got {start}"
            )
        p = predict(collective, self.cluster, self.library, self.profile)
        pace = PACES[p.library.name](
            collective, self.ideal, p.choice.chosen, p.choice.facts, p.profile
        )
        ranks = collective.ranks or tuple(range(p.n_ranks))
        network, notes = self.network(collective.ranks), list(p.notes)
        multiplicity = 1
        if self.algorithm is None:
            carried = carry_out(
                collective, p.choice, self.cluster, fold=self.fold, alike=self.alike
            )
            ideal = ClusterNetwork(cluster=self.ideal, ranks=collective.ranks)
            laid, takes = tuned(
                carried.schedule,
                _chosen(network, carried),
                _chosen(ideal, carried),
                pace,
                self._trial(len(carried.schedule)),
            )
            name, protocol, multiplicity = p.algorithm, p.protocol, carried.multiplicity
            if multiplicity > 1:
                notes.append(f"folded: {multiplicity} equal channels are played as one")
            if takes > COARSE:
                notes.append(
                    f"alone on an ideal cluster this schedule takes {takes:.3g} times the closed "
                    "form: its pieces are coarser than the library's, or links allow no less; "
                    "compare simulations with each other"
                )
            if carried.hosts:
                notes.append(
                    f"folded: {self.cluster.nodes} equal machines are played as {carried.hosts}"
                )
        else:
            schedule = _own(self.algorithm, collective, p.n_ranks, self.channels)
            laid = paced(lay(schedule, network), network, pace, Tuning())
            name = (
                self.algorithm
                if isinstance(self.algorithm, str)
                else (type(self.algorithm).__name__.lower())
            )
            protocol = p.protocol
        return _Job(
            collective=collective, start=start, ranks=ranks, laid=laid, launch=pace.launch,
            algorithm=name, protocol=protocol, multiplicity=multiplicity, notes=tuple(notes),
        )  # fmt: skip


def _chosen(network: ClusterNetwork, carried: Carried) -> Network:
    """The network with the NICs that the library takes, and equal machines as one."""
    if not network.cluster.node.nics:
        return network
    chosen = ChosenNics(base=network, exits=carried.exits, rails=carried.rails, ports=carried.ports)
    return Folded(base=chosen, whole=network, hosts=carried.hosts) if carried.hosts else chosen


def _own(
    algorithm: str | Algorithm | Schedule, collective: Collective, n: int, channels: int
) -> Schedule:
    """The schedule of an algorithm of the caller's choice."""
    if isinstance(algorithm, Schedule):
        if algorithm.chunks.n != n:
            raise CollectiveError(
                f"{collective.operation}: the schedule is for {algorithm.chunks.n} ranks, the "
                f"group has {n}"
            )
        return algorithm
    chosen = find_algorithm(algorithm) if isinstance(algorithm, str) else algorithm
    return chosen.schedule(collective, n, channels)


# ---- playing ----


def _play(
    jobs: Sequence[_Job],
    rules: _Rules,
    conditions: Conditions,
    watch: Watch | None,
    notes: tuple[str, ...],
) -> Timeline:
    _check(conditions, rules.cluster)
    network = rules.network(None)
    parts = [_part(job, conditions) for job in jobs]
    others = [_other(t, rules) for t in conditions.traffic]
    share = _slow_links(conditions, rules.cluster, network)
    changes = [
        replace(change, capacity=change.capacity * share[change.link])
        for fault in conditions.faults
        for change in fault.changes(network)
    ]
    plan = make_plan([*parts, *others], network.capacity * share, changes)
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
    notes = tuple(dict.fromkeys([*notes, *(note for job in jobs for note in job.notes)]))
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


def _part(job: _Job, conditions: Conditions) -> Part:
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
        laid = _slowed(laid, slow)
    if conditions.jitter is not None:
        extra = conditions.jitter.draw(len(schedule))
    start = job.start + late
    start[: len(job.ranks)] += job.launch * slow[: len(job.ranks)]
    return Part(laid=laid, start=start, death=death, extra=extra, share=float(job.multiplicity))


def _slowed(laid: Laid, slow: Floats) -> Laid:
    """Ways of slow ranks: hops and channels go with the slower end, as do the device's links."""
    schedule, ways = laid.schedule, laid.ways
    factor = np.ones(len(ways))
    factor[laid.way] = np.maximum(slow[schedule.source], slow[schedule.destination])
    slower = replace(
        ways,
        latency=ways.latency * factor,
        overhead=ways.overhead * factor,
        limit=ways.limit / factor,
    )
    return replace(laid, ways=slower)


def _slow_links(conditions: Conditions, cluster: Cluster, network: Network) -> Floats:
    """Per link the share of its bandwidth that slow ranks' devices leave of it."""
    share = np.ones(len(network.capacity))
    for rank, factor in conditions.slow.items():
        if factor > 1:
            device = LinkFault(link="node{}/{}".format(*_device(cluster, rank)))
            share[[change.link for change in device.changes(network)]] /= factor
    return share


def _device(cluster: Cluster, rank: int) -> tuple[int, str]:
    host, local = divmod(rank, cluster.gpus_per_node)
    return host, cluster.node.gpus[local].name


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
