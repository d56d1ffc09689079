"""What data parallelism adds to a step: gradients reduced, parameters gathered, and what shows.

    zero_stage 0     all_reduce of the gradients
    zero_stage 1, 2  reduce_scatter of the gradients, all_gather of the updated parameters
    zero_stage 3     for every micro-batch: all_gather of each layer's parameters, forward and
                     backward, reduce_scatter of its gradients (Zhao et al., arXiv:2304.11277);
                     with pipeline stages once a step: gathered in the first forward, kept, and all
                     reduced after the last backward (torch.distributed.pipelining, stage.py)

Layer by layer an exchange runs beside the compute of its neighbours, if the layout says so.
Gradients and parameters of zero_stage 0 to 2 travel in the frameworks' buckets
(bucketing.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from commsim.units import Seconds
from commsim.workload.communication import Message
from commsim.workload.layout import Layout
from commsim.workload.layouts.shares import Share
from commsim.workload.passes import Pass, Sent, Setting


@dataclass(frozen=True, slots=True)
class Unit:
    """`count` equal layers: s of their passes, what one rank holds of one."""

    count: int
    forward: Seconds
    backward: Seconds
    share: Share


@dataclass(frozen=True, slots=True)
class Exchange:
    """A chunk's gradients and parameters exchanged once, s; reduced_in, gathered_in: in how many
    pieces, at most."""

    gradients: Seconds = 0.0
    parameters: Seconds = 0.0
    sent: tuple[Sent, ...] = ()
    reduced_in: float = 1.0
    gathered_in: float = 1.0


def once(
    share: Share, s: Setting, layout: Layout, layers: int, pieces: tuple[float, float]
) -> Exchange:
    """What the ranks of a chunk of so many layers exchange once a step. pieces: buckets of dense
    parameters and of experts (zero_stage 0 to 2)."""
    if layout.zero_stage == 3:
        return _kept(share, s, layout, layers)
    gradients = parameters = 0.0
    sent = []
    groups = (("dp", share.trained_dense), ("edp", share.trained_expert))
    for (kind, elements), count in zip(groups, pieces, strict=True):
        if not elements:
            continue
        operation = "reduce_scatter" if layout.zero_stage else "all_reduce"
        m = s.messages.of(operation, kind, elements * s.framework.grad_bytes / count)
        gradients += m.duration * count
        sent.append(Sent("dp", m, 0.0, count))
        if layout.zero_stage:
            m = s.messages.of("all_gather", kind, elements * s.shape.bytes / count)
            parameters += m.duration * count
            sent.append(Sent("dp", m, 0.0, count))
    most = max(pieces)
    return Exchange(gradients, parameters, tuple(sent), most, most)


def _kept(share: Share, s: Setting, layout: Layout, layers: int) -> Exchange:
    """ZeRO-3 of a pipeline's chunk: layer by layer, gathered before the first forward, reduced
    after the last backward."""
    layer = Share(
        share.dense / layers, share.expert / layers,
        share.trained_dense / layers, share.trained_expert / layers,
    )  # fmt: skip
    gathers, reduces = of_unit(layer, s, layout)
    together, last = _streams(reduces)
    return Exchange(
        layers * together + last, layers * _sum(gathers),
        tuple(Sent("dp", x.message, 0.0, layers * x.count) for x in (*reduces, *gathers)),
        1.0, layers,
    )  # fmt: skip


def sharded(
    units: Sequence[Unit], s: Setting, layout: Layout
) -> tuple[tuple[Sent, ...], tuple[Sent, ...]]:
    """The messages that ZeRO-3 adds to a chunk's forward and backward of one micro-batch.

    Layer i + 1 is gathered while layer i computes; backward, the reduce_scatter of layer i shares
    the network with the all_gather of layer i - 1, and the replicas' all_reduce runs beside both.
    The first gather and the last reductions show.
    """
    forward: list[Sent] = []
    backward: list[Sent] = []
    gather = layout.overlap_param_gather
    # A gather that is waited for comes after the reduction before it: one communicator, in order.
    reduce = layout.overlap_grad_reduce and gather
    for i, unit in enumerate(units):
        gathers, reduces = of_unit(unit.share, s, layout)
        for sent, messages, work, end in (
            (forward, [(m, gather) for m in gathers], unit.forward, gathers),
            (backward, [(m, gather) for m in gathers] + [(m, reduce) for m in reduces],
             unit.backward, reduces),
        ):  # fmt: skip
            beside_work = [m for m, hidden in messages if hidden]
            total = _sum(beside_work)
            shown = max(_streams(beside_work)[0] - work, s.values["slowed"] * total)
            share = shown / total if total else 0.0
            for m, hidden in messages:
                times = unit.count * m.count
                if i == 0 and hidden and m in end:  # the first layer's has nothing beside it
                    sent.append(Sent("dp", m.message, m.message.duration, m.count))
                    times -= m.count
                if times:
                    part = share if hidden else 1.0
                    sent.append(Sent("dp", m.message, part * m.message.duration, times))
    return tuple(forward), tuple(backward)


def _streams(messages: Sequence[Sent]) -> tuple[Seconds, Seconds]:
    """s of the longer and of the shorter of two streams that run side by side: the shard groups',
    and the replicas' all_reduces."""
    replicas = _sum([m for m in messages if m.message.operation == "all_reduce"])
    shards = _sum(messages) - replicas
    return max(shards, replicas), min(shards, replicas)


def _sum(messages: Sequence[Sent]) -> Seconds:
    return sum(m.message.duration * m.count for m in messages)


def of_unit(share: Share, s: Setting, layout: Layout) -> tuple[list[Sent], list[Sent]]:
    """One layer's all_gathers and its reductions."""
    pieces = s.framework.gathers
    gathers, reduces = [], []
    for kind, held, trained in (
        ("shard", share.dense, share.trained_dense),
        ("expert_shard", share.expert, share.trained_expert),
    ):
        if held:
            m = s.messages.of("all_gather", kind, held * s.shape.bytes / pieces)
            gathers.append(Sent("dp", _listed(m, s), 0.0, pieces))
        if trained:
            nbytes = trained * s.framework.grad_bytes
            m = s.messages.of("reduce_scatter", kind, nbytes / pieces)
            reduces.append(Sent("dp", _listed(m, s), 0.0, pieces))
            if layout.hsdp is not None and kind == "shard":
                m = s.messages.of("all_reduce", "replicate", nbytes / layout.hsdp)
                reduces.append(Sent("dp", m, 0.0))
    return gathers, reduces


def _listed(m: Message, s: Setting) -> Message:
    """The message at no more than the rate of code that gathers and reduces lists of tensors."""
    if s.framework.gathers == 1 or not m.duration:
        return m
    duration = max(m.duration, m.nbytes / s.values["listed"])
    return replace(
        m, duration=duration, nics=m.nics * m.duration / duration,
        scale_up=m.scale_up * m.duration / duration,
    )  # fmt: skip


def after(
    finals: Sequence[tuple[Seconds, Pass, int, Exchange]], overlap: bool, s: Setting
) -> Seconds:
    """When a stage's gradients are reduced, s from the step's begin.

    finals: for each chunk in the order of their last backward, when that ends, the pass, its
    layers, the exchange. Beside the pass, the first layer's gradients start the exchange and the
    last one's end it.
    """
    if not overlap:
        return max(end for end, *_ in finals) + sum(e.gradients for *_, e in finals)
    done = 0.0
    for end, back, layers, e in finals:
        pieces = min(layers, e.reduced_in)
        beside = 1 - 1 / pieces
        slowed = s.values["slowed"] * beside * min(e.gradients, back.total)
        begin = max(done, end - back.total * beside)
        done = max(begin + e.gradients, end + slowed + e.gradients / pieces)
    return done


def before(
    firsts: Sequence[tuple[Seconds, Pass, int, Exchange]], overlap: bool, s: Setting
) -> Seconds:
    """By how much a stage's first forwards come later as their parameters are not there, s.

    firsts: for each chunk in order, when its first forward begins, the pass, its layers, the
    exchange.
    """
    if not overlap:
        return sum(e.parameters for *_, e in firsts)
    late = there = 0.0
    for begin, ahead, layers, e in firsts:
        pieces = min(layers, e.gathered_in)
        beside = 1 - 1 / pieces
        slowed = s.values["slowed"] * beside * min(e.parameters, ahead.total)
        there += e.parameters
        begin += late
        late += max(
            slowed,
            there - e.parameters * beside - begin,
            there - begin - ahead.total * beside,
        )
    return late
