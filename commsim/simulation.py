"""The straight line at its other fidelity: every transfer played on the links of the cluster.

    collective, cluster -> library's choice -> schedule -> laid on links -> played -> Timeline

The pace of an operation (launch, hops, what protocols leave of a link) comes from the profile.
What is below a schedule's grain is found by playing a library's operation alone on the ideal form
of its cluster, where it is to take what the closed form says (engine/pacing.py). Played on the real
cluster, with others, late ranks or broken links, every difference is contention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, reduce
from numbers import Real
from pathlib import Path

from commsim.collectives.algorithm import Algorithm
from commsim.collectives.algorithms.ring import Ring
from commsim.collectives.catalogue import algorithm as find_algorithm
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import WHOLE, Schedule, Window
from commsim.cost.cost import Pace
from commsim.cost.profile import Profile
from commsim.engine import recurrence
from commsim.engine.cluster_network import ClusterNetwork
from commsim.engine.conditions import Conditions
from commsim.engine.disturbances import check_ranks, links_left, transfer, without_dead_nics
from commsim.engine.folding import Folded
from commsim.engine.job import Job
from commsim.engine.network import Network, lay
from commsim.engine.nic_choice import ChosenNics
from commsim.engine.pacing import Tuning, paced, tuned
from commsim.engine.plan import Part, Plan, make_plan
from commsim.engine.timeline import Timeline
from commsim.errors import CollectiveError
from commsim.libraries.carried import Carried
from commsim.libraries.carry_out import carry_out
from commsim.libraries.library import Library
from commsim.prediction import PACES, Prediction, predict
from commsim.topology.cluster import Cluster
from commsim.units import Seconds

COARSE = 1.03
"""How far a schedule alone may lie above the closed form without a word."""

OUT_OF_STEP = (
    "jitter: channels that fall out of step use links while others hop, so that a little of it can "
    "be faster than none"
)

Asked = Collective | tuple[Collective, Seconds]
Watch = Callable[[int, int, Seconds], None]


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
    fold: play equal channels, and equal nodes where nothing tells them apart, as one, and a ring's
    rounds only until they repeat; by ecmp each channel has a way of its own and is played, and with
    jitter, deaths and failing links every round. watch: called with (transfers done, of how many, s
    simulated), with none done while the pace is being found; what it raises ends the simulation.

    Raises what `predict` raises, and ConditionError for conditions on ranks that do not exist.
    """
    conditions = conditions or Conditions()
    asked = _listed(collective)
    if not asked:
        raise CollectiveError("simulate: no collective given; name at least one")
    cluster, conditions, notes = without_dead_nics(cluster, conditions)
    check_ranks(conditions, cluster)
    stage = _Stage(
        cluster=cluster, routing=routing, seed=seed, fold=fold and routing == "adaptive",
        fold_alone=fold, window=recurrence.FIRST if fold else WHOLE,
        undisturbed=conditions.healthy and len(asked) == 1, watch=watch,
    )  # fmt: skip
    jobs = []
    for each, start in asked:
        prediction = predict(each, cluster, library, profile)
        if algorithm is None:
            jobs.append(_by_library(prediction, start, stage))
        else:
            jobs.append(_by_algorithm(prediction, start, stage, algorithm, channels))
    return _play(jobs, stage, conditions, notes)


def _listed(asked: Asked | Sequence[Asked]) -> list[tuple[Collective, Seconds]]:
    """All that is asked, with starts: a pair of a collective and a number is one."""
    if isinstance(asked, Collective):
        return [(asked, 0.0)]
    if isinstance(asked, tuple) and len(asked) == 2 and isinstance(asked[1], Real):
        return [(asked[0], float(asked[1]))]
    return [each if isinstance(each, tuple) else (each, 0.0) for each in asked]


@dataclass(frozen=True, kw_only=True)
class _Stage:
    """Where and how collectives are played. fold: equal channels as one; fold_alone: when one is
    played alone on the ideal cluster. window: how many of equal rounds are tried first.
    undisturbed: one alone, on a healthy cluster.
    """

    cluster: Cluster
    routing: str
    seed: int
    fold: bool
    fold_alone: bool
    window: Window
    undisturbed: bool
    watch: Watch | None

    @cached_property
    def network(self) -> ClusterNetwork:
        """The cluster's links."""
        return self.ways_of(None)

    def ways_of(self, ranks: tuple[int, ...] | None) -> ClusterNetwork:
        """The same links with the ways of a group."""
        return ClusterNetwork(
            cluster=self.cluster, ranks=ranks, routing=self.routing, seed=self.seed
        )

    @property
    def alike(self) -> bool:
        """Whether nothing tells equal machines apart."""
        return self.fold and self.undisturbed and _regular(self.cluster)

    @property
    def alike_alone(self) -> bool:
        """Whether nothing does when one is played alone on the ideal cluster."""
        return self.fold_alone and _regular(self.ideal)

    @cached_property
    def ideal(self) -> Cluster:
        """The cluster with a fabric that lacks nothing."""
        return replace(self.cluster, fabric=self.cluster.fabric.unlimited)

    def pace(self, p: Prediction) -> Pace:
        """What the operation's software takes and leaves, alone on the ideal cluster."""
        price = PACES[p.library.name]
        return price(p.collective, self.ideal, p.choice.chosen, p.choice.facts, p.profile)

    def watched(self, of: int, trial: bool) -> Callable[[int, Seconds], None] | None:
        """`watch` for a play of so many transfers; in a trial none is done yet."""
        watch = self.watch
        if watch is None:
            return None
        return lambda done, now: watch(0, of, 0.0) if trial else watch(done, of, now)


def _regular(cluster: Cluster) -> bool:
    """Whether the fabric is the same for all machines, and lacks nothing."""
    return cluster.fabric.subnet is None and cluster.bisection_share >= 1


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A collective on the links at its pace: `build` makes it with a window of its rounds, of which
    `window` has sufficed so far.
    """

    build: Callable[[Window], Job]
    window: Window


def _by_library(p: Prediction, start: Seconds, stage: _Stage) -> _Asked:
    """What the library has chosen, at the pace of the closed form."""
    collective, pace = p.collective, stage.pace(p)

    @cache
    def carried(window: Window, alone: bool = False) -> Carried:
        return carry_out(
            collective, p.choice, stage.cluster, window=window,
            fold=stage.fold_alone if alone else stage.fold,
            alike=stage.alike_alone if alone else stage.alike,
        )  # fmt: skip

    first, alone = carried(stage.window), carried(stage.window, alone=True)
    network = chosen(stage.ways_of(collective.ranks), first)
    found = tuned(
        lambda window: carried(window, alone=True).schedule,
        chosen(ClusterNetwork(cluster=stage.ideal, ranks=collective.ranks), alone),
        pace,
        window=stage.window,
        multiplicity=alone.multiplicity,
        watch=lambda ops: stage.watched(ops, trial=True),
    )
    by = replace(found.by, channel=pace.channel * first.multiplicity)
    notes = list(p.notes)
    if first.multiplicity > 1:
        notes.append(f"folded: {first.multiplicity} equal channels are played as one")
    if found.takes > COARSE:
        notes.append(
            f"alone on an ideal cluster this schedule takes {found.takes:.3g} times the closed "
            "form: links allow no less; compare simulations with each other"
        )
    elif by.hops != 1:
        notes.append(
            f"hops take {by.hops:.3g} times what the profile says, for all to take what the "
            "closed form says"
        )
    if first.hosts:
        notes.append(f"folded: {stage.cluster.nodes} equal machines are played as {first.hosts}")

    def build(window: Window) -> Job:
        laid = paced(lay(carried(window).schedule, network), network, pace, by)
        return Job(
            collective=collective, start=start, ranks=_ranks(p), laid=laid, launch=pace.launch,
            algorithm=p.algorithm, protocol=p.protocol, multiplicity=first.multiplicity,
            notes=tuple(notes),
        )  # fmt: skip

    return _Asked(build=build, window=found.window)


def _by_algorithm(
    p: Prediction,
    start: Seconds,
    stage: _Stage,
    algorithm: str | Algorithm | Schedule,
    channels: int,
) -> _Asked:
    """An algorithm of the caller's choice, with the profile's launch, hops and protocols."""
    collective, pace = p.collective, stage.pace(p)
    name = algorithm if isinstance(algorithm, str) else type(algorithm).__name__.lower()
    network = stage.ways_of(collective.ranks)

    def build(window: Window) -> Job:
        laid = lay(_own(algorithm, collective, p.n_ranks, channels, window), network)
        return Job(
            collective=collective, start=start, ranks=_ranks(p), launch=pace.launch,
            laid=paced(laid, network, pace, Tuning()), algorithm=name, protocol=p.protocol,
            notes=p.notes,
        )  # fmt: skip

    return _Asked(build=build, window=stage.window)


def _ranks(p: Prediction) -> tuple[int, ...]:
    return p.collective.ranks or tuple(range(p.n_ranks))


def chosen(network: ClusterNetwork, carried: Carried) -> Network:
    """The network with the NICs that the library takes, and equal machines as one."""
    if not network.cluster.node.nics:
        return network
    chosen = ChosenNics(
        base=network, exits=carried.exits, entries=carried.entries, devices=carried.devices,
        rails=carried.rails, ports=carried.ports,
    )  # fmt: skip
    return Folded(base=chosen, whole=network, hosts=carried.hosts) if carried.hosts else chosen


def _own(
    algorithm: str | Algorithm | Schedule,
    collective: Collective,
    n: int,
    channels: int,
    window: Window,
) -> Schedule:
    """The schedule of an algorithm of the caller's choice; of a ring's rounds only the window."""
    if isinstance(algorithm, Schedule):
        if algorithm.repeats:
            missing = sum(repeat.missing for repeat in algorithm.repeats)
            raise CollectiveError(
                f"{collective.operation}: {missing} rounds of the schedule are missing; give the "
                "algorithm, or the schedule without a window"
            )
        if algorithm.chunks.n != n:
            raise CollectiveError(
                f"{collective.operation}: the schedule is for {algorithm.chunks.n} ranks, the "
                f"group has {n}"
            )
        return algorithm
    chosen = find_algorithm(algorithm) if isinstance(algorithm, str) else algorithm
    if isinstance(chosen, Ring):
        chosen = replace(chosen, window=window)
    return chosen.schedule(collective, n, channels)


def _play(
    asked: Sequence[_Asked], stage: _Stage, conditions: Conditions, notes: tuple[str, ...]
) -> Timeline:
    network = stage.network
    others = [transfer(t, stage.ways_of((t.source, t.destination))) for t in conditions.traffic]
    capacity, changes = links_left(conditions, stage.cluster, network)
    # Where it may never end, or no two rounds are alike, every transfer is wanted.
    endless = conditions.deaths or any(change.capacity == 0 for change in changes)
    window = reduce(Window.over, [each.window for each in asked])
    if endless or conditions.jitter is not None:
        window = WHOLE

    @cache
    def drafted(window: Window) -> tuple[tuple[Job, ...], tuple[Part, ...]]:
        jobs = tuple(each.build(window) for each in asked)
        return jobs, tuple(job.part(conditions) for job in jobs)

    def plan(window: Window) -> Plan:
        return make_plan([*drafted(window)[1], *others], capacity, changes)

    found = recurrence.play(plan, window, lambda plan: stage.watched(len(plan), trial=False))
    played, first = [], 0
    for job, part in zip(*drafted(found.window), strict=True):
        last = first + len(job.laid.schedule)
        played.append(job.played(part, found.times.of(slice(first, last))))
        first = last
    if conditions.jitter is not None:
        notes = (*notes, OUT_OF_STEP)
    said = [note for one in played for note in (*one.notes, *one.repeated)]
    return Timeline(
        played=tuple(played), network=network, changes=found.plan.changes, conditions=conditions,
        notes=tuple(dict.fromkeys([*notes, *said])),
    )  # fmt: skip
