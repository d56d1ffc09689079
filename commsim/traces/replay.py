"""A recorded step on another cluster, with another library, bucket size or number of ranks.

What was computed is replayed as it was measured; what was communicated is predicted anew; who waits
for whom is kept (line.py), so the waiting for other ranks follows by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from commsim.collectives.collective import Collective
from commsim.cost.profile import Profile
from commsim.errors import CollectiveError, ScheduleError
from commsim.libraries.library import Library
from commsim.prediction import Prediction, predict
from commsim.topology.cluster import Cluster
from commsim.traces.joining import Operation, Step, size_of
from commsim.traces.line import Part
from commsim.traces.merging import ALL, BEGIN, Joint, merged
from commsim.traces.rebucketing import Bucket, rebucketed
from commsim.traces.recording import SEND, Call
from commsim.traces.roles import Scale, roles, scale, scaled_group
from commsim.units import Bytes, Seconds, format_size
from commsim.workload.streams import Spans, play


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """On what a step is replayed. cluster: None replays it as measured. world: ranks in all; None:
    as recorded. bucket: bytes of the buckets in which gradients are reduced; None: as recorded.
    roles: by group, what it is for. compute: factor on the time of all computing. per_node: ranks
    on a machine, as torchrun places them; None: as many as it has GPUs."""

    cluster: Cluster | None = None
    library: Library | None = None
    profile: Profile | None = None
    world: int | None = None
    bucket: Bytes | None = None
    roles: Mapping[str, str] = field(default_factory=dict)
    compute: float = 1.0
    per_node: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.compute < math.inf:
            raise ScheduleError(
                f"compute: expected a factor above 0 such as 0.5, got {self.compute:g}"
            )
        room = None if self.cluster is None else self.cluster.gpus_per_node
        if self.per_node is not None and not 1 <= self.per_node <= (room or self.per_node):
            raise ScheduleError(f"ranks on a machine: expected 1 to {room}, got {self.per_node}")
        if self.bucket is not None and self.bucket < 1:
            raise ScheduleError(f"bucket size: expected 1 byte or more, got {self.bucket}")

    def device(self, rank: int) -> int:
        """The cluster's own number of the GPU that a rank drives."""
        if self.cluster is None or self.per_node is None:
            return rank
        node, local = divmod(rank, self.per_node)
        return node * self.cluster.gpus_per_node + local


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Priced:
    """An operation of a replay. ranks: its group's. operation: what was recorded, None of a bucket
    that was made. prediction: None where it is replayed as measured. duration: s of the transfer,
    nan where each rank takes what it took."""

    call: Call
    ranks: tuple[int, ...]
    operation: Operation | None
    prediction: Prediction | None
    duration: Seconds


@dataclass(frozen=True, kw_only=True, eq=False)
class Replay:
    """A step as it was played. places: of each task its rank and the place of its part, in `parts`.
    priced: by rank and part."""

    step: Step
    where: Where
    parts: dict[int, tuple[Part, ...]]
    places: tuple[tuple[int, int], ...]
    priced: dict[tuple[int, int], Priced]
    operations: tuple[Priced, ...]
    spans: Spans
    world: int
    notes: tuple[str, ...]

    @property
    def duration(self) -> Seconds:
        """s from the first start to the last end."""
        return self.spans.duration

    @cached_property
    def task(self) -> dict[tuple[int, int], int]:
        """The number of the task of a rank's part."""
        return {place: i for i, place in enumerate(self.places)}

    def part(self, task: int) -> Part | None:
        """What a task stands for; None: the time before a rank begins, or the arrival of all."""
        rank, place = self.places[task]
        return None if place == BEGIN or rank == ALL else self.parts[rank][place]


def replay(step: Step, where: Where | None = None) -> Replay:
    """The step played on another cluster, or as measured.

    Raises ScheduleError where the ranks' operations do not match, CollectiveError where the cluster
    has too few ranks.
    """
    where = where or Where()
    if step.mismatches:
        raise ScheduleError(f"the step cannot be played: {step.mismatches[0]}")
    return _Replaying(step, where).play()


def price(step: Step, where: Where | None = None) -> tuple[Priced, ...]:
    """The step's operations beside what each is predicted to take, without playing them; those in
    which ranks do not match are not predicted."""
    return _Replaying(step, where or Where()).priced()


class _Replaying:
    def __init__(self, step: Step, where: Where) -> None:
        self.step, self.where = step, where
        self.world = where.world or step.world
        self.scale: Scale | None = None
        self.roles: dict[str, str | None] = {}
        if where.world not in (None, step.world) or where.bucket is not None:
            self.roles = roles(step, where.roles)
        if where.world not in (None, step.world):
            self.scale = scale(step, self.roles, self.world)
        self.asked: dict[Collective, Prediction] = {}
        self.notes = list(step.notes)
        self._check()

    def _check(self) -> None:
        cluster = self.where.cluster
        if cluster is None:
            return
        room = cluster.nodes * (self.where.per_node or cluster.gpus_per_node)
        if room < self.world:
            raise CollectiveError(
                f"the step has {self.world} ranks, {cluster.name} with {cluster.nodes} nodes has"
                f" room for {room}; add machines with --nodes"
            )

    def play(self) -> Replay:
        parts, members = self._parts()
        priced = {number: self._price(op) for number, op in members.items()}
        durations = {n: p.duration for n, p in priced.items()}
        leads = {r: self.step.lead(r) for r in parts}
        tasks, places = merged(parts, members, durations, leads, self.where.compute)
        by_part = {place: priced[n] for n, j in members.items() for place in j.places.items()}
        return Replay(
            step=self.step, where=self.where, parts=parts, places=tuple(places), priced=by_part,
            operations=tuple(priced.values()), spans=play(tasks), world=self.world,
            notes=tuple(dict.fromkeys([*self.notes, *self._said(list(priced.values()))])),
        )  # fmt: skip

    def priced(self) -> tuple[Priced, ...]:
        """Every operation, in its order."""
        return tuple(self._price(joint) for joint in self._parts()[1].values())

    def _parts(self) -> tuple[dict[int, tuple[Part, ...]], dict[int, Joint]]:
        """By rank its parts, and the operations that join them."""
        lines = {
            r: line for r, line in self.step.lines.items()
            if self.scale is None or self.scale.rank(r) is not None
        }  # fmt: skip
        first = {r: {p.event: i for i, p in enumerate(line.parts) if p.event >= 0}
                 for r, line in lines.items()}  # fmt: skip
        parts = {r: line.parts for r, line in lines.items()}
        members = {
            number: Joint(
                call=op.call, operation=op, nbytes=size_of(op),
                places={r: first[r][e] for r, e in op.events.items() if r in lines},
            )
            for number, op in enumerate(self.step.operations)
        }  # fmt: skip
        members = {n: j for n, j in members.items() if j.places}
        if self.where.bucket is None:
            return parts, members
        gradients = {name for name, role in self.roles.items() if role == "dp"}
        if not gradients:
            raise ScheduleError(
                "bucket size: no group is known to be data parallel; say which with --role"
                f" {next(iter(self.roles), '?')}=dp"
            )
        made, before, after = _rebucket(parts, members, gradients, self.where.bucket)
        self.notes.append(
            f"{before} all_reduces of gradients became {after} buckets of up to"
            f" {format_size(self.where.bucket)}; within a recorded bucket gradients are taken to"
            " come evenly"
        )
        return made

    def _price(self, joint: Joint) -> Priced:
        call, cluster = joint.call, self.where.cluster
        role = self.roles.get(call.group)
        group = scaled_group(self.step, call.group, role, self.scale, self.world)
        ranks = self._ends(joint, group.ranks) if call.is_message else group.ranks
        measured = Priced(
            call=call, ranks=ranks, operation=joint.operation, prediction=None, duration=math.nan
        )
        if cluster is None:
            return measured
        if len(ranks) < 2:
            return replace(measured, duration=0.0)
        nbytes = joint.nbytes
        if nbytes is None or (joint.operation is not None and joint.operation.mismatch):
            return measured
        kind = "send_recv" if call.is_message else call.operation
        root = ranks[0] if call.is_message else call.root
        collective = Collective(
            kind, nbytes, call.dtype, tuple(map(self.where.device, ranks)),
            reduce_op=call.reduce_op,
            root=self.where.device(root) if root is not None and root in ranks else None,
        )  # fmt: skip
        found = self.asked.get(collective)
        if found is None:
            found = predict(collective, cluster, self.where.library, self.where.profile)
            self.asked[collective] = found
        return replace(measured, prediction=found, duration=found.duration)

    def _ends(self, joint: Joint, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """Sender and receiver of a message."""
        rank, call = next(iter(joint.asked.items()))
        other = call.peer
        if other is None:
            other = ranks[(ranks.index(rank) + 1) % len(ranks)] if rank in ranks else rank
        ends = (rank, other) if call.operation == SEND else (other, rank)
        if self.scale is not None:
            ends = tuple(r if (n := self.scale.rank(r)) is None else n for r in ends)  # type: ignore[assignment]
        return ends if ends[0] != ends[1] else ends[:1]

    def _said(self, priced: Sequence[Priced]) -> list[str]:
        """What was replayed and what predicted, and what was assumed."""
        predicted = sum(1 for p in priced if p.prediction is not None)
        silent = sum(1 for p in priced if p.prediction is None and len(p.ranks) > 1)
        said = []
        if self.where.cluster is not None:
            factor = "" if self.where.compute == 1 else f", times {self.where.compute:g}"
            said = [
                f"replayed as measured: computing, copies and pauses of the hosts{factor}",
                f"predicted anew: {predicted} operations on {self.where.cluster.name}",
            ]
            if silent:
                said.append(f"replayed as measured: {silent} operations whose size is not recorded")
        unknown = sorted({p.call.group for p in priced if not self.step.groups.get(
            p.call.group) or not self.step.groups[p.call.group].ranks})  # fmt: skip
        if unknown and self.where.cluster is not None:
            said.append(
                f"the ranks of group {', '.join(map(repr, unknown))} are not recorded: ranks 0, 1,"
                " 2 ... were taken"
            )
        if any(p.call.uneven for p in priced) and self.where.cluster is not None:
            said.append("uneven all_to_alls are priced as even ones of the most a rank sends")
        if self.scale is not None:
            said.append(
                f"{self.scale.recorded} data-parallel replicas became {self.scale.replicas}: each"
                " rank computes what it did (its batch, its model; also its part of the optimizer,"
                " which a sharded one would change)"
            )
        guessed = sum(line.guessed for line in self.step.lines.values())
        known = sum(line.known for line in self.step.lines.values())
        if guessed:
            said.append(
                f"of {known + guessed} waits between streams {guessed} are inferred from times"
            )
        return said


def _rebucket(
    parts: dict[int, tuple[Part, ...]],
    members: dict[int, Joint],
    gradients: set[str],
    bucket: Bytes,
) -> tuple[tuple[dict[int, tuple[Part, ...]], dict[int, Joint]], int, int]:
    """Other parts and operations; how many all_reduces of gradients there were, and are."""
    mine = {
        n: Bucket(nbytes=j.nbytes, call=j.call, places=j.places)
        for n, j in members.items()
        if j.call.group in gradients and j.call.operation == "all_reduce" and j.nbytes
    }  # fmt: skip
    new_parts, new_buckets, moved = rebucketed(parts, mine, bucket)
    kept = {
        n: replace(j, places={r: moved[r][i] for r, i in j.places.items()})
        for n, j in members.items() if n not in mine
    }  # fmt: skip
    first = max(members, default=-1) + 1
    made = {
        first + i: Joint(call=b.call, operation=None, nbytes=b.nbytes, places=b.places)
        for i, b in enumerate(new_buckets)
    }  # fmt: skip
    return (new_parts, kept | made), len(mine), len(new_buckets)
