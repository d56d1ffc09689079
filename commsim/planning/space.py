"""Every layout worth a thought: what each framework can be told, on this many GPUs.

`layouts` walks through it in one fixed order. A structure (tp, cp, pp, ep, etp, interleave) that
breaks a rule at which frameworks stop is counted by that rule. Left out by construction, as the
step's model can never prefer them: sequence_parallel=False where tp > 1 (as many bytes sent, more
memory), and groups smaller than all replicas at zero_stage 1 and 2 (the same messages, but more
memory).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any

from commsim.errors import PlanError, UnknownNameError
from commsim.topology.cluster import Cluster
from commsim.workload.frameworks import framework
from commsim.workload.layer import Experts
from commsim.workload.layout import Layout
from commsim.workload.layouts.rules import (
    WORDS,
    divisors,
    even,
    may_be_uneven,
    order_problems,
    problems,
)
from commsim.workload.model import Model
from commsim.workload.pipeline import pipeline

STATED = ("global_batch", "seq_len", "framework", "dtype", "placement")
"""Fields of a layout that are not searched."""
LEAST_PIECE = 128
"""Tokens below which context parallelism cuts no sequence: one tile of a product."""
MICRO_BATCHES = "micro-batches"
"""What counts the micro-batches that do not go into a structure's pipeline."""
DP_BEFORE_PP, PP_BEFORE_DP = "tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What a framework can be told. stages: of ZeRO; grouped: those that may shard within groups of
    replicas; inner: which of tp, cp, pp, ep it has; interleaves: may a pipeline stage hold several
    chunks; beside: may tensor-parallel messages run beside their products; switches: may the
    overlap of the gradients' exchange be turned off."""

    stages: tuple[int, ...]
    grouped: tuple[int, ...] = ()
    inner: tuple[str, ...] = ("tp", "cp", "pp", "ep")
    schedules: tuple[str, ...] = ("1f1b",)
    interleaves: bool = False
    recompute: tuple[str, ...] = ("none", "full")
    orders: tuple[str, ...] = (DP_BEFORE_PP,)
    beside: bool = False
    switches: bool = True


# Megatron-LM's arguments.py: --use-distributed-optimizer, --use-tp-pp-dp-mapping, --overlap-*,
# --tp-comm-overlap, --num-virtual-stages-per-pipeline-rank. torchtitan's job configuration.
# DeepSpeed: 1F1B only. FSDP: reshard_after_forward, and a mesh of two dimensions.
_MEGATRON = Abilities(
    stages=(0, 1), interleaves=True, recompute=("none", "selective", "full"),
    orders=(DP_BEFORE_PP, PP_BEFORE_DP), beside=True,
)  # fmt: skip
ABILITIES = {
    "megatron": _MEGATRON,
    "nemo": _MEGATRON,
    "torchtitan": Abilities(
        stages=(2, 3), grouped=(3,), schedules=("1f1b", "gpipe"), interleaves=True,
        recompute=("none", "selective", "full"), beside=True, switches=False,
    ),
    "deepspeed": Abilities(stages=(0, 1, 2, 3), inner=("tp", "pp", "ep")),
    "fsdp": Abilities(
        stages=(2, 3), grouped=(3,), inner=(), recompute=("none", "selective", "full"),
        switches=False,
    ),
    "ddp": Abilities(stages=(0,), inner=(), switches=False),
    "other": Abilities(stages=(0,), inner=("tp", "pp"), switches=False),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """What is searched: the layouts of one framework on all GPUs of a cluster.

    only: the values that dimensions are held to, by Layout's names; without: those that they may
    not take.
    """

    model: Model
    cluster: Cluster
    global_batch: int
    seq_len: int
    framework: str = "megatron"
    dtype: str = "bfloat16"
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    without: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.framework not in ABILITIES:
            raise UnknownNameError("framework", self.framework, ABILITIES)
        if self.dtype not in WORDS["dtype"]:
            raise UnknownNameError("dtype", self.dtype, WORDS["dtype"])
        for name, value in (("global_batch", self.global_batch), ("seq_len", self.seq_len)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise PlanError(
                    f"plan: {name}: expected a whole number of 1 or more, got {value!r}"
                )
        for listed in (self.only, self.without):
            for name, values in listed.items():
                _check_held(name, values)
        for name, values in self.only.items():
            if set(values) <= set(self.without.get(name, ())):
                raise PlanError(
                    f"plan: {name}: held to {_text(values)}, and all of that is excluded"
                )

    @property
    def able(self) -> Abilities:
        """What the framework can be told."""
        return ABILITIES[self.framework]

    def held(self, name: str, values: Sequence[Any]) -> tuple[Any, ...]:
        """These values of a dimension, or those it is held to; none that it may not take."""
        without = self.without.get(name, ())
        return tuple(value for value in self.only.get(name, values) if value not in without)


def _text(values: tuple[Any, ...]) -> str:
    return ", ".join(map(str, values))


def _check_held(name: str, values: tuple[Any, ...]) -> None:
    """Raises where a dimension does not exist or could never take a value."""
    known: dict[str, Any] = {f.name: f.default for f in fields(Layout) if f.name not in STATED}
    if name not in known:
        raise UnknownNameError("dimension of a layout", name, known)
    if not values:
        raise PlanError(f"plan: only {name}: expected at least one value, got none")
    default = 1 if name in ("etp", "hsdp") else known[name]
    for value in values:
        if value is None and name in ("etp", "hsdp"):
            continue
        least, most = (0, 3) if name == "zero_stage" else (1, math.inf)
        if type(value) is not type(default) or (type(value) is int and not least <= value <= most):
            raise PlanError(
                f"plan: only {name}: expected values such as {default!r}, got {value!r}"
            )
        if name in WORDS and value not in WORDS[name]:
            raise UnknownNameError(name, str(value), WORDS[name])
        if name == "schedule":
            pipeline(str(value))
        if name == "order":
            for problem in order_problems(Layout(order=str(value))):
                raise PlanError(f"plan: only order: {problem}")


def layouts(space: Space, rejected: Counter[str] | None = None) -> Iterator[Layout]:
    """Every valid layout of a space, each once. rejected: as in `ladders`."""
    for ladder in ladders(space, rejected):
        for base in ladder:
            yield from variants(base, space)


def ladders(space: Space, rejected: Counter[str] | None = None) -> Iterator[tuple[Layout, ...]]:
    """Layouts that differ in nothing but the micro-batch, ascending; order and switches left open.

    rejected: takes the count of structures that break a rule, by the rule (`layout.tp`); of
    micro-batches of a structure that do not go into its pipeline, under MICRO_BATCHES.
    """
    for base in _structures(space, rejected):
        yield from _filled(base, space, rejected)


def variants(base: Layout, space: Space) -> Iterator[Layout]:
    """A layout in every rank order and with every overlap: all take the same memory."""
    orders = space.held("order", space.able.orders)
    # megatron-bridge 0.3.1, training/config.py: the second order goes without cp and ep.
    apart = base.pp > 1 and base.dp > 1 and base.cp == base.ep == 1
    for order, (reduce, gather, beside) in product(
        orders if apart else orders[:1], _switches(base, space)
    ):
        yield replace(
            base, order=order, overlap_grad_reduce=reduce, overlap_param_gather=gather,
            tp_comm_overlap=beside,
        )  # fmt: skip


def _structures(space: Space, rejected: Counter[str] | None) -> Iterator[Layout]:
    """tp, cp, pp with schedule and interleave, ep and etp; micro-batches of one sequence."""
    world, able = space.cluster.n_ranks, space.able
    inner = () if space.model.kind == "list" else able.inner
    sizes: dict[str, tuple[Any, ...]] = {
        name: divisors(world) if name in inner else (1,) for name in ("tp", "cp", "pp")
    }
    pieces = max(1, space.seq_len // LEAST_PIECE)
    sizes["cp"] = tuple(n for n in sizes["cp"] if n <= pieces)
    sizes["sequence_parallel"] = (True,)
    held = (space.held(name, values) for name, values in sizes.items())
    for tp, cp, pp, along in product(*held):
        dp, rest = divmod(world, tp * cp * pp)
        if rest or dp not in space.held("dp", (dp,)):
            continue
        if space.global_batch % dp:
            _count(rejected, "layout.global_batch")
            continue
        plain = Layout(
            tp=tp, cp=cp, pp=pp, dp=dp, global_batch=space.global_batch, seq_len=space.seq_len,
            dtype=space.dtype, framework=space.framework, zero_stage=0,
            order=space.held("order", able.orders)[0], sequence_parallel=along,
        )  # fmt: skip
        for ep, etp in _experts(space, tp):
            one = replace(plain, ep=ep, etp=etp)
            broken = problems(one, space.model, space.cluster)
            other = [line for line in broken if not line.startswith("layout.pp:")]
            if other:
                _count(rejected, other[0])
                continue
            for base in _pipelines(one, space):
                if _divides(base, space.model):
                    yield base
                else:
                    _count(rejected, "layout.pp")


def _divides(base: Layout, model: Model) -> bool:
    """Do the layers go into the stages' chunks, as the framework wants it?"""
    if base.model_chunks == 1:
        return True
    if model.n_layers + 2 + model.mtp < base.model_chunks:
        return False
    return may_be_uneven(base, model) or even(base, model)


def _count(rejected: Counter[str] | None, problem: str) -> None:
    if rejected is not None:
        rejected[problem.split(":", 1)[0]] += 1


def _experts(space: Space, tp: int) -> Iterator[tuple[int, int | None]]:
    """ep and etp: an expert is cut as the rest of its layer, or not at all."""
    feeds = (layer.feed for layer, _ in space.model.stacks)
    counts = [feed.count for feed in feeds if isinstance(feed, Experts)]
    if not counts:
        yield 1, None
        return
    sizes = divisors(math.gcd(*counts)) if "ep" in space.able.inner else (1,)
    for etp in space.held("etp", (1, tp) if tp > 1 else (1,)):
        for ep in space.held("ep", sizes):
            yield ep, etp


def _pipelines(one: Layout, space: Space) -> Iterator[Layout]:
    """A structure with every schedule, and every number of model chunks of a stage.

    Where layers may lie unevenly, numbers of chunks are powers of two or cut the layers evenly.
    """
    if one.pp == 1:
        yield one
        return
    layers, pp = space.model.n_layers, one.pp
    chunks = [1]
    if space.able.interleaves:
        most = (layers + 2 + space.model.mtp) // pp
        chunks += [n for n in range(2, most + 1) if layers % (n * pp) == 0 or not n & (n - 1)]
        if not may_be_uneven(one, space.model):
            chunks = list(range(1, max(1, most) + 1))
    for schedule in space.held("schedule", space.able.schedules):
        for count in space.held("interleave", chunks):
            if count == 1 or schedule == "1f1b":
                yield replace(one, schedule=schedule, interleave=count)


def _filled(
    base: Layout, space: Space, rejected: Counter[str] | None
) -> Iterator[tuple[Layout, ...]]:
    """A structure with every sharding and recompute; in each, every micro-batch."""
    micro = []
    for size in space.held("micro_batch", divisors(space.global_batch // base.dp)):
        if problems(replace(base, micro_batch=size)):
            _count(rejected, MICRO_BATCHES)
        else:
            micro.append(size)
    kept = space.able.recompute
    if base.framework in ("megatron", "nemo") and framework(base).fused_attention:
        kept = ("none", "full")  # fused attention keeps nothing that selective could leave out
    for (stage, group), recompute in product(_shards(base, space), space.held("recompute", kept)):
        one = replace(base, zero_stage=stage, hsdp=group, recompute=recompute)
        if micro and any(True for _ in _switches(one, space)):
            yield tuple(replace(one, micro_batch=size) for size in sorted(micro))


def _shards(base: Layout, space: Space) -> Iterator[tuple[int, int | None]]:
    """zero_stage and hsdp."""
    replicas = base.dp * base.cp
    for stage in space.held("zero_stage", space.able.stages):
        if base.framework == "deepspeed" and stage > 1 and base.pp > 1:
            continue
        groups: tuple[int | None, ...] = (None,)
        if stage in space.able.grouped:
            groups += tuple(n for n in divisors(replicas) if 1 < n < replicas and n % base.cp == 0)
        for group in space.held("hsdp", groups):
            if group is None or replicas % group == 0:
                yield stage, group
        if replicas == 1:
            return  # nothing to shard


def _switches(base: Layout, space: Space) -> Iterator[tuple[bool, bool, bool]]:
    """Overlap of gradients, of parameters, and of tensor-parallel messages.

    Parameters are gathered beside compute only where gradients are reduced so, and only where they
    are sharded (Megatron-LM's arguments.py). User buffers need one NVLink (or xGMI) domain.
    """
    exchanged = base.dp * base.cp > 1
    pairs = [(True, base.zero_stage > 0 or not exchanged)]
    if space.able.switches and exchanged:
        pairs += [(True, False)] * (base.zero_stage > 0) + [(False, False)]
    near = 1 < base.tp <= space.cluster.fabric.scale_up_domain
    for reduce, gather in pairs:
        held = reduce in space.held("overlap_grad_reduce", (reduce,)) and (
            gather in space.held("overlap_param_gather", (gather,))
        )
        if exchanged and not held:
            continue
        able = space.able.beside and near and base.sequence_parallel
        for beside in space.held("tp_comm_overlap", (True, False) if able else (False,)):
            yield reduce, gather, beside
