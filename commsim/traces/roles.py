"""What process groups are for, and the same step on more or fewer ranks.

Only data parallelism is scaled: each rank keeps its batch and its model, so its computing and the
sizes that a data-parallel group reduces or gathers in all stay; groups of other roles keep their
size. In the numbering of ranks, rank = low + stride x replica + stride x replicas x high.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from commsim.errors import ScheduleError, SpecError
from commsim.traces.joining import Step
from commsim.traces.recording import Group

ROLES = ("dp", "tp", "pp", "cp", "ep", "world")
# Megatron-LM (core/parallel_state.py), torchtitan and DeviceMesh ("mesh_dp_shard") name groups so.
WORDS = {
    "dp": r"data|ddp|fsdp|hsdp|dp|replicate|shard|zero", "tp": r"tensor|tp",
    "pp": r"pipeline|pp|stage", "cp": r"context|sequence|cp|sp", "ep": r"expert|ep|moe",
}  # fmt: skip
REPLICATING = ("DistributedDataParallel", "FSDP", "FullyShardedDataParallel")


def roles(step: Step, said: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """The role of each group that the step uses, None where nothing tells it. said: by name, what
    the caller knows; SpecError for a group or a role that does not exist."""
    used = list(dict.fromkeys(op.call.group for op in step.operations))
    said = dict(said or {})
    problems = [
        f"role of group {name!r}: no operation is on a group of that name; there are"
        f" {', '.join(map(repr, used))}"
        for name in said if name not in used
    ]  # fmt: skip
    problems += [
        f"role of group {name!r}: expected one of {', '.join(ROLES)}, got {role!r}"
        for name, role in said.items() if role not in ROLES
    ]  # fmt: skip
    if problems:
        raise SpecError(problems)
    described = {name: _described(step.group(name)) for name in used}
    found = {name: said.get(name) or described[name] for name in used}
    for name in used:
        whole = len(step.group(name).ranks) == step.world
        if found[name] is None and whole:
            if len(used) > 1 and "dp" in found.values():
                found[name] = "world"
            elif len(used) == 1 and _replicates(step):
                found[name] = "dp"
    return found


def _described(group: Group) -> str | None:
    """The role that a group's description names, if it names one and only one."""
    text = re.split(r"[^a-z]+", group.description.lower())
    named = [role for role, words in WORDS.items() if any(re.fullmatch(words, w) for w in text)]
    if "dp" in named and "cp" in named and "data" in text:
        return "dp"  # data parallelism with context parallelism: what reduces gradients
    return named[0] if len(named) == 1 else None


def _replicates(step: Step) -> bool:
    return any(hint.startswith(REPLICATING) for r in step.recordings for hint in r.hints)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Data parallelism of `replicas` instead of `recorded` ranks, which lie `stride` apart."""

    stride: int
    recorded: int
    replicas: int

    def rank(self, rank: int) -> int | None:
        """A recorded rank's number; None where it is no longer there."""
        low, rest = rank % self.stride, rank // self.stride
        high, replica = divmod(rest, self.recorded)
        if replica >= self.replicas:
            return None
        return low + self.stride * (replica + self.replicas * high)

    def ranks(self, group: Group, role: str | None, world: int) -> tuple[int, ...]:
        """A group's ranks."""
        if role == "world":
            return tuple(range(world))
        kept = [new for r in group.ranks if (new := self.rank(r)) is not None]
        if role != "dp" or not kept:
            return tuple(kept)
        return tuple(kept[0] + self.stride * i for i in range(self.replicas))


def scale(step: Step, known: Mapping[str, str | None], world: int) -> Scale:
    """What it takes to put the step on `world` ranks; ScheduleError where it cannot be told."""
    for name, role in known.items():
        if role is None:
            group = step.group(name)
            raise ScheduleError(
                f"group {name!r} ({group.description or 'no description'}, {len(group.ranks)}"
                f" ranks): what it is for is not known, so the step cannot be put on {world} ranks;"
                f" say it with --role {name or '?'}=dp ({', '.join(ROLES)})"
            )
    found = {_shape(step.group(name)) for name, role in known.items() if role == "dp"}
    if len(found) != 1 or None in found:
        raise ScheduleError(
            f"the step cannot be put on {world} ranks: expected data-parallel groups of one shape,"
            f" their ranks equally far apart, found {len(found - {None})} shapes"
        )
    shape = found.pop()
    assert shape is not None
    stride, recorded = shape
    replicas, rest = divmod(world * recorded, step.world)
    if rest or replicas < 1:
        raise ScheduleError(
            f"{step.world} ranks with {recorded} replicas cannot become {world}: expected a"
            f" multiple of {step.world // recorded}, what one replica takes"
        )
    return Scale(stride=stride, recorded=recorded, replicas=replicas)


def _shape(group: Group) -> tuple[int, int] | None:
    ranks: Sequence[int] = group.ranks
    stride = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    even = stride > 0 and tuple(ranks) == tuple(ranks[0] + stride * i for i in range(len(ranks)))
    return (stride, len(ranks)) if even else None


def scaled_group(step: Step, name: str, role: str | None, by: Scale | None, world: int) -> Group:
    """A group of the step, on the ranks that it has after scaling."""
    group = step.group(name)
    if by is None:
        return group
    ranks = by.ranks(group, role, world)
    return replace(group, ranks=ranks, size=len(ranks))
