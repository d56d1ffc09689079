"""What NCCL could be told, and how large buckets could be: settings under which a step is shorter.

Searched for a layout that is known, by the step itself, predicted with the variables set:

    NCCL_ALGO, NCCL_PROTO      of every operation ("allreduce:tree", NCCL >= 2.24; one for all
                               operations before), those that all its messages can be run with
    NCCL_MIN_CTAS              more channels (fewer are never tried: the cost model does not bind a
                               ring by its channels)
    NCCL_NVLS_ENABLE=0, NCCL_CROSS_NIC     where a message uses NVLS, or leaves its machines
    buckets                    of gradients, where the framework has them (buckets.py)

Under each setting of channels and NICs the others are changed one by one as long as one helps. One
that could not save enough, even if nothing else hid what its messages get shorter, is not tried:

    saved <= sum over dimensions of min(exposed, sum of count x (duration - the least candidate))

Ignored: that more channels take SMs from compute.
"""

from __future__ import annotations

import contextlib
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from commsim.collectives.collective import Collective
from commsim.errors import LibraryError
from commsim.libraries.nccl.constants import parse_version
from commsim.planning import buckets
from commsim.planning.buckets import WORTH
from commsim.prediction import Alternative, predict
from commsim.topology.cluster import Cluster
from commsim.units import Seconds
from commsim.workload.communication import Message, Messages
from commsim.workload.layouts.groups import groups
from commsim.workload.passes import Sent
from commsim.workload.step import StepPrediction, predict_step

ROUNDS = 3
"""How often the settings are gone through, at most."""
ALGORITHMS = {
    "ring": "Ring", "tree": "Tree", "nvls": "NVLS", "nvls_tree": "NVLSTree", "pat": "PAT",
    "collnet_direct": "CollnetDirect", "collnet_chain": "CollnetChain",
}  # fmt: skip
OPERATIONS = {
    "all_reduce": "allreduce", "all_gather": "allgather", "reduce_scatter": "reducescatter",
    "broadcast": "broadcast", "reduce": "reduce",
}  # fmt: skip
GROUPS = {
    "dp": ("dp", "edp", "shard", "replicate", "expert_shard", "expert_replicate"),
    "tp": ("tp", "etp"),
}
"""Kinds of groups whose messages count for a dimension of the layout, where not its own alone."""
BY_OPERATION = (2, 24, 0)
"""The first release of NCCL in which NCCL_ALGO and NCCL_PROTO may name operations."""
CHANNELS = (16, 32)
Way = tuple[str, str]
"""Algorithm and protocol."""


class Tuned(NamedTuple):
    """A step with its best settings. duration: s of a step with them; saved: s that they save
    besides what buckets alone do; variables: of NCCL; bucket: elements (None: the framework's own
    size)."""

    duration: Seconds
    saved: Seconds = 0.0
    variables: tuple[tuple[str, str], ...] = ()
    bucket: float | None = None

    @property
    def environment(self) -> str:
        """The variables as a shell takes them: NCCL_ALGO=allreduce:Tree."""
        return " ".join(f"{name}={shlex.quote(value)}" for name, value in self.variables)

    @property
    def text(self) -> str:
        """The variables, and the buckets."""
        parts = [self.environment]
        if self.bucket is not None:
            parts.append(f"buckets of {self.bucket:,.0f} elements")
        return ", ".join(part for part in parts if part)

    def to_dict(self) -> dict[str, object]:
        """Plain figures for JSON, keys with their unit."""
        return {
            "variables": dict(self.variables), "bucket_elements": self.bucket,
            "duration_s": self.duration, "saved_s": self.saved,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of the search. network: variables of channels and NICs; ways: by operation."""

    network: tuple[tuple[str, str], ...] = ()
    ways: Mapping[str, Way] = field(default_factory=dict)
    bucket: float | None = None

    def variables(self, by_operation: bool) -> tuple[tuple[str, str], ...]:
        """All of NCCL's."""
        if not self.ways:
            return self.network
        named = sorted(self.ways.items())
        if not by_operation:
            named = named[:1]  # all are the same
        texts = [
            ";".join(f"{f'{OPERATIONS[op]}:' if by_operation else ''}{word(way)}"
                     for op, way in named)
            for word in (lambda way: ALGORITHMS[way[0]], lambda way: way[1])
        ]  # fmt: skip
        return (*self.network, ("NCCL_ALGO", texts[0]), ("NCCL_PROTO", texts[1]))


def tune(step: StepPrediction, bucket: float | None = None, worth: float = WORTH) -> Tuned:
    """The best settings found, against a step with buckets of so many elements (None: the
    framework's own); none where they would not save that share of it.

    NCCL's are searched where it is the cluster's library, buckets with any.
    """
    search = Search(step, bucket)
    found = search.best(worth)
    before, took = search.took(search.start), search.took(found)
    if before - took < worth * before:
        return Tuned(before, bucket=bucket)
    return Tuned(took, before - took, found.variables(search.by_operation), found.bucket)


class Search:
    """The settings of one step, from buckets of so many elements on. Each is predicted once."""

    def __init__(self, step: StepPrediction, bucket: float | None = None) -> None:
        self.step, self.start = step, Setting(bucket=bucket)
        name = step.cluster.default_library.split()[0]
        self.nccl = name.startswith("nccl")
        version = name.partition("@")[2]
        self.by_operation = not version or parse_version(version) >= BY_OPERATION
        self._steps: dict[object, StepPrediction] = {}

    def of(self, setting: Setting) -> StepPrediction:
        """The step under a setting."""
        key = variables, bucket = setting.variables(self.by_operation), setting.bucket
        found = self._steps.get(key)
        if found is None:
            if bucket is not None:
                found = buckets.with_size(self.of(replace(setting, bucket=None)), bucket)
            elif variables:
                there = with_variables(self.step.cluster, variables)
                found = predict_step(self.step.model, there, self.step.layout, self.step.profile)
            else:
                found = self.step
            self._steps[key] = found
        return found

    def took(self, setting: Setting) -> Seconds:
        """s of the step under a setting."""
        return self.of(setting).duration

    def best(self, worth: float) -> Setting:
        """The best setting; the one to start from where none saves that share."""
        best, start = self.start, self.of(self.start)
        least = start.duration * (1 - worth)
        if sum(start.exposed.values()) < worth * start.duration:
            return best
        for network in self.networks():
            setting = replace(self.start, network=network)
            if self.floor(setting) >= least:
                continue
            for _ in range(ROUNDS):
                before = setting
                for others in self.changes(setting):
                    limit = self.took(setting)
                    possible = [one for one in others if self.least(one, setting) < limit]
                    setting = min((setting, *possible), key=self.took)
                if setting == before:
                    break
            if self.took(setting) < least:
                best, least = setting, self.took(setting)
        return best

    def networks(self) -> Iterator[tuple[tuple[str, str], ...]]:
        """Variables of channels and NICs that could matter here, none first."""
        yield ()
        if not self.nccl:
            return
        messages = [sent.message for sent in self.step.messages]
        for least in CHANNELS:
            yield (("NCCL_MIN_CTAS", str(least)),)
        if any(one.algorithm.startswith("nvls") for one in messages):
            yield (("NCCL_NVLS_ENABLE", "0"),)
        if any(one.nics for one in messages) and len(self.step.cluster.node.nics) > 1:
            for value in ("0", "1"):
                yield (("NCCL_CROSS_NIC", value),)

    def changes(self, setting: Setting) -> Iterator[list[Setting]]:
        """Ways of each operation, then sizes of buckets: those beside a setting."""
        if self.nccl:
            step = self.of(Setting(setting.network, bucket=setting.bucket))
            operations = _operations(step)
            if self.by_operation:
                for operation, messages in operations.items():
                    yield [
                        replace(setting, ways={**setting.ways, operation: way})
                        for way in common(messages)
                    ]
            elif operations:
                every = [one for messages in operations.values() for one in messages]
                yield [
                    replace(setting, ways=dict.fromkeys(operations, way)) for way in common(every)
                ]
        yield [replace(setting, bucket=size) for size in buckets.sizes(self.step.layout)]

    def floor(self, setting: Setting) -> Seconds:
        """What a step takes at least, s, under these channels and NICs with any ways and
        buckets."""
        step = self.of(setting)
        gains = savings(step, None)
        if buckets.sizes(step.layout):
            gains["dp"] = step.exposed["dp"]
        return step.duration - sum(gains.values())

    def least(self, setting: Setting, before: Setting) -> Seconds:
        """What a step takes under a setting at least, s, judged from one that differs in one
        thing."""
        step = self.of(before)
        if setting.bucket != before.bucket:
            return step.duration - step.exchange
        return step.duration - sum(savings(step, dict(setting.ways)).values())


def savings(step: StepPrediction, ways: Mapping[str, Way] | None) -> dict[str, Seconds]:
    """By dimension of the layout, s that a step could save at most if its operations went these
    ways (None: each message its fastest)."""
    shorter: dict[str, Seconds] = defaultdict(float)
    for sent in step.messages:
        operation, now = sent.message.operation, sent.message.duration
        if ways is None:
            took = min(_taking(step, sent).values(), default=now)
        elif operation in ways:
            took = _taking(step, sent).get(ways[operation], now)
        else:
            continue
        shorter[sent.kind] += sent.count * max(0.0, now - took)
    shown = step.exposed
    return {kind: min(shown[kind], gain) for kind, gain in shorter.items()}


def common(messages: list[dict[Way, Seconds]]) -> list[Way]:
    """The ways that all messages of an operation can go, the fastest in sum first."""
    first, *others = messages
    ways = [way for way in first if all(way in other for other in others)]
    return sorted(ways, key=lambda way: sum(one[way] for one in messages))


def _operations(step: StepPrediction) -> dict[str, list[dict[Way, Seconds]]]:
    """For every operation that NCCL_ALGO knows, what each of its messages takes each way, s."""
    found: dict[str, list[dict[Way, Seconds]]] = defaultdict(list)
    for sent in step.messages:
        if sent.message.operation in OPERATIONS and sent.message.ranks > 1:
            found[sent.message.operation].append(_taking(step, sent))
    return found


def _taking(step: StepPrediction, sent: Sent) -> dict[Way, Seconds]:
    """What one message takes each way that the library could run it, s, beside its sisters."""
    message = sent.message
    if message.operation not in OPERATIONS:
        return {}
    least = message.nics * message.duration
    return {
        (one.algorithm, one.protocol): max(least, one.duration)
        for one in _alternatives(step.cluster, group_of(step, sent), message)
        if one.available and one.algorithm in ALGORITHMS
    }


@lru_cache(maxsize=4096)
def _alternatives(
    cluster: Cluster, ranks: tuple[int, ...], message: Message
) -> tuple[Alternative, ...]:
    asked = Collective(message.operation, nbytes=message.nbytes, ranks=ranks)
    return predict(asked, cluster).alternatives


def group_of(step: StepPrediction, sent: Sent) -> tuple[int, ...]:
    """The ranks of a group that sends this very message."""
    known, message = groups(step.layout), sent.message
    messages = Messages(step.cluster, step.layout)
    for kind in GROUPS.get(sent.kind, (sent.kind,)):
        with contextlib.suppress(LibraryError):  # told to go a way that this group cannot
            if known.size(kind) == message.ranks and (
                messages.of(message.operation, kind, message.nbytes) == message
            ):
                return known.ranks(kind)
    raise AssertionError(f"no group of the layout sends {message}")


@lru_cache(maxsize=256)
def with_variables(cluster: Cluster, variables: tuple[tuple[str, str], ...]) -> Cluster:
    """The cluster with these variables set for its library."""
    text = " ".join((cluster.default_library, *(f"{k}={v}" for k, v in variables)))
    return replace(cluster, default_library=text)
