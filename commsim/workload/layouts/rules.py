"""The rules a layout must keep: those at which the frameworks themselves stop."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from commsim.errors import UnknownNameError
from commsim.topology.cluster import Cluster
from commsim.workload.layer import Experts, FeedForward
from commsim.workload.layout import Layout
from commsim.workload.model import Model
from commsim.workload.pipeline import pipeline

# What the words of a layout may be.
WORDS = {
    "framework": ("megatron", "nemo", "deepspeed", "fsdp", "torchtitan", "ddp", "other"),
    "dtype": ("bfloat16", "float16", "float32", "float8"),
    "recompute": ("none", "selective", "full"),
}
DIMENSIONS = ("tp", "cp", "ep", "dp", "pp")
COUNTS = (
    "tp", "pp", "dp", "cp", "ep", "micro_batch", "global_batch", "seq_len", "interleave",
)  # fmt: skip


def problems(
    layout: Layout, model: Model | None = None, cluster: Cluster | None = None
) -> tuple[str, ...]:
    """The rules the layout breaks, a line each: where, what was found, what was expected."""
    words = (*_words(layout), *_sizes(layout))
    if words:
        return words
    found = [*_batch(layout), *_pipeline(layout), *_sharding(layout), *order_problems(layout)]
    if cluster is not None:
        found.extend(_world(layout, cluster))
    if model is not None:
        found.extend(_tensor(layout, model))
        found.extend(_layers(layout, model))
        found.extend(_experts(layout, model))
    return tuple(found)


def _words(layout: Layout) -> Iterator[str]:
    for key, names in WORDS.items():
        value = getattr(layout, key)
        if value not in names:
            yield f"layout.{key}: {UnknownNameError(key, str(value), names)}"
    try:
        pipeline(str(layout.schedule))
    except UnknownNameError as error:
        yield f"layout.schedule: {error}"


def _sizes(layout: Layout) -> Iterator[str]:
    optional = [key for key in ("etp", "hsdp") if getattr(layout, key) is not None]
    for key in (*COUNTS, *optional):
        value = getattr(layout, key)
        if not is_count(value):
            yield f"layout.{key}: expected a whole number of 1 or more, got {value!r}"
    if layout.zero_stage not in (0, 1, 2, 3):
        yield f"layout.zero_stage: expected 0, 1, 2 or 3, got {layout.zero_stage!r}"


def _batch(layout: Layout) -> Iterator[str]:
    share = layout.dp * layout.micro_batch
    if layout.global_batch % share:
        nearest = max(1, round(layout.global_batch / share)) * share
        yield (
            f"layout.global_batch: expected a multiple of dp x micro_batch = {layout.dp} x "
            f"{layout.micro_batch} = {share}, got {layout.global_batch}; the nearest is {nearest}"
        )
    # Causal attention is balanced by giving each rank two pieces: Megatron's context parallelism.
    pieces = 2 * layout.cp if layout.cp > 1 else 1
    pieces = math.lcm(pieces, layout.cp * layout.tp if layout.sequence_parallel else 1)
    if layout.seq_len % pieces:
        yield (
            f"layout.seq_len: expected a multiple of {pieces} (2 x cp; with sequence_parallel "
            f"also tp x cp), got {layout.seq_len}"
        )


def _pipeline(layout: Layout) -> Iterator[str]:
    pp, chunks = layout.pp, layout.interleave
    if chunks > 1 and pp == 1:
        yield f"layout.interleave: expected 1 without pipeline stages (pp=1), got {chunks}"
    elif chunks > 1 and schedule_name(layout) != "gpipe" and layout.micro_batches % rounds(layout):
        yield (
            f"layout.interleave: interleaved stages expect micro-batches in multiples of "
            f"{rounds(layout)} for pp={pp}, "
            f"got global_batch / (dp x micro_batch) = {layout.micro_batches}"
        )
    plain = of_torch(layout) and schedule_name(layout) == "1f1b" and chunks == 1
    if plain and layout.micro_batches < pp:
        yield (
            f"layout.global_batch: torch's 1F1B expects as many micro-batches as stages, pp={pp}, "
            f"got global_batch / (dp x micro_batch) = {layout.micro_batches}"
        )
    odd = pp % 2 or layout.micro_batches % 2 or layout.micro_batches < 2 * pp
    if schedule_name(layout) == "dualpipe" and pp > 1 and odd:
        yield (
            "layout.schedule: dualpipe expects an even pp and an even number of micro-batches, "
            f"at least 2 x pp, got pp={pp} and {layout.micro_batches} micro-batches"
        )
    if layout.framework == "deepspeed" and layout.zero_stage > 1 and pp > 1:
        yield (
            "layout.zero_stage: DeepSpeed's pipeline works with ZeRO stages 0 and 1, "
            f"got {layout.zero_stage} with pp={pp}"
        )


def rounds(layout: Layout) -> int:
    """What the micro-batches of interleaved stages come in multiples of.

    Megatron wants groups of pp (megatron-core 0.16.1, pipeline_parallel/schedules.py, unless
    microbatch_group_size_per_vp_stage is set), DeepSpeed does not interleave. torch cuts them into
    as many equal rounds as there are whole groups (torch 2.13, ScheduleInterleaved1F1B).
    """
    return max(1, layout.micro_batches // layout.pp) if of_torch(layout) else layout.pp


def of_torch(layout: Layout) -> bool:
    """Are its pipelines those of torch.distributed.pipelining?"""
    return layout.framework in ("torchtitan", "fsdp")


def _sharding(layout: Layout) -> Iterator[str]:
    ranks = layout.dp * layout.cp
    if layout.hsdp is not None and ranks % layout.hsdp:
        yield (
            f"layout.hsdp: expected a divisor of dp x cp = {ranks}, got {layout.hsdp}; "
            f"the nearest is {nearest_divisor(ranks, layout.hsdp)}"
        )


def order_problems(layout: Layout) -> Iterator[str]:
    """What is wrong with the order of its dimensions and the places of its ranks."""
    names = layout.order.split("-")
    if sorted(names) not in (sorted(DIMENSIONS), sorted(set(DIMENSIONS) - {"ep"})):
        yield (f"layout.order: expected {'-'.join(DIMENSIONS)} in any order, got {layout.order!r}")
    place = layout.placement
    if place is not None and sorted(place) != list(range(layout.world)):
        yield f"layout.placement: expected each rank from 0 to {layout.world - 1} exactly once"


def _world(layout: Layout, cluster: Cluster) -> Iterator[str]:
    if layout.world != cluster.n_ranks:
        rest = layout.tp * layout.cp * layout.pp
        advice = f"; dp={cluster.n_ranks // rest} would fit" if not cluster.n_ranks % rest else ""
        yield (
            f"layout: tp x cp x dp x pp = {layout.tp} x {layout.cp} x {layout.dp} x {layout.pp} = "
            f"{layout.world}, expected the cluster's {cluster.n_ranks} GPUs{advice}"
        )


def _tensor(layout: Layout, model: Model) -> Iterator[str]:
    tp = layout.tp
    if tp == 1 and layout.expert_tp == 1:
        return
    if model.kind == "list":
        yield f"layout.tp: expected 1 for a model that is a list of parts, got {tp}"
        return
    wide: dict[str, int] = {}  # what is cut, and how wide it is
    for layer, _ in model.stacks:
        attention, feed = layer.attention, layer.feed
        if attention is not None:
            wide["attention heads"] = attention.heads
            # Fewer key-value heads than ranks are kept in several copies, as frameworks do.
            if attention.kv_heads % tp and tp % attention.kv_heads:
                wide["key-value heads"] = attention.kv_heads
        if isinstance(feed, FeedForward):
            wide["features of the feed-forward"] = feed.width
    broken = [f"{width} {what}" for what, width in wide.items() if width % tp]
    if broken:
        yield (
            f"layout.tp: expected a divisor of {' and of '.join(broken)}, got {tp}; "
            f"nearest: {nearest_divisor(math.gcd(*wide.values()), tp)}"
        )


def _layers(layout: Layout, model: Model) -> Iterator[str]:
    parts = layout.model_chunks
    if parts == 1:
        return
    if model.kind == "list":
        yield f"layout.pp: expected 1 for a model that is a list of parts, got {layout.pp}"
    elif model.n_layers + 2 + model.mtp < parts:
        yield (
            f"layout.pp: {layout.pp} stages of {layout.interleave} chunks are more than the "
            f"{model.n_layers} layers, embedding and head"
        )
    elif not may_be_uneven(layout, model) and not even(layout, model):
        counts = [n for n in range(1, model.n_layers + 3) if even(replace(layout, pp=n), model)]
        near = min(counts, key=lambda n: abs(math.log(n / layout.pp)), default=1)
        yield (
            f"layout.pp: {model.n_layers} layers do not go evenly into pp x interleave = "
            f"{layout.pp} x {layout.interleave} = {parts} parts, with or without embedding and "
            f"head counted as layers, as {layout.framework} wants it; nearest pp: {near}"
        )


def even(layout: Layout, model: Model) -> bool:
    """Do the layers go evenly into the stages' chunks, alone or with embedding and head counted?"""
    parts = layout.model_chunks
    ends = (0, 1, 2, 2 + model.mtp)  # Megatron's account_for_..._in_pipeline_split
    return any((model.n_layers + extra) % parts == 0 for extra in ends)


def may_be_uneven(layout: Layout, model: Model) -> bool:
    """Does the framework take layers as they come?

    Megatron's plain split does not; models with experts or token prediction run there with a
    pipeline layout of their own. DeepSpeed and torchtitan balance whatever there is.
    """
    if layout.framework not in ("megatron", "nemo"):
        return True
    return model.mtp > 0 or any(isinstance(layer.feed, Experts) for layer, _ in model.stacks)


def _experts(layout: Layout, model: Model) -> Iterator[str]:
    ep, etp = layout.ep, layout.expert_tp
    feeds = (layer.feed for layer, _ in model.stacks)
    counts = {feed.count: feed for feed in feeds if isinstance(feed, Experts)}
    if ep > 1 and not counts:
        yield f"layout.ep: {model.name or 'the model'} has no experts: expected 1, got {ep}"
    for count, feed in counts.items():
        if count % ep:
            near = nearest_divisor(count, ep)
            yield f"layout.ep: expected a divisor of the {count} experts, got {ep}; nearest: {near}"
        if feed.width % etp:
            yield f"layout.etp: expected a divisor of an expert's {feed.width} features, got {etp}"
    ranks = layout.tp * layout.cp * layout.dp
    if counts and ranks % (ep * etp):
        yield (
            f"layout.ep: expected ep x etp = {ep} x {etp} to divide the tp x cp x dp = {ranks} "
            f"ranks of a stage; nearest ep: {nearest_divisor(max(1, ranks // etp), ep)}"
        )


@lru_cache(maxsize=4096)
def divisors(number: int) -> tuple[int, ...]:
    """All of them, the smallest first."""
    return tuple(n for n in range(1, number + 1) if number % n == 0)


def nearest_divisor(number: int, wanted: int) -> int:
    """The divisor whose ratio to the wanted number is nearest to 1."""
    return min(divisors(number), key=lambda n: abs(math.log(n / wanted)))


def schedule_name(layout: Layout) -> str:
    """What its schedule is called first: "1f1b" where it says "interleaved"."""
    return pipeline(layout.schedule).names[0]


def is_count(value: object) -> bool:
    """Is it a whole number of 1 or more?"""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
