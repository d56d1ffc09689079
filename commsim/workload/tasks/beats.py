"""A layer's passes as beats: compute, and the message beside it, in the order of the kernels.

The messages are those of passes.py; here they have a place in time. A beat's work and message begin
together; the next beat begins when both have ended.

    attention or feed-forward     forward: gather, first products, core, last products, scatter
    with sequence parallelism     backward: gather, last products and core, dgrad of the first
                                  beside the gather of the input, wgrad beside the scatter
    without                       forward: products, all_reduce; backward: products, wgrad of the
                                  first beside the all_reduce
    tp_comm_overlap               all of a message but its first piece beside its product
    experts                       all_to_all, products, all_to_all
    context parallel              the ring's messages beside the core, but for its last part

Where the schedule takes backward apart, the weights' gradients are no part of it, and so nothing
runs beside the scatter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from commsim.units import Seconds
from commsim.workload import chunk, compute, ends, operations, passes
from commsim.workload.communication import Message
from commsim.workload.layer import Experts, Layer
from commsim.workload.layout import Layout
from commsim.workload.layouts import shares
from commsim.workload.layouts.shares import Share
from commsim.workload.layouts.stages import Chunk
from commsim.workload.listed import listed
from commsim.workload.model import Model
from commsim.workload.operations import Matmul, Work
from commsim.workload.passes import Pass, Sent, Setting


@dataclass(frozen=True, slots=True)
class Beat:
    """`work` s of compute and, beside it, `times` a message along a dimension `kind`."""

    work: Seconds
    kind: str = ""
    message: Message | None = None
    times: float = 1.0


Beats = tuple[Beat, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """What is gathered and reduced together: a layer, or an end of the model.

    backward: in one; dgrad: without the weights' gradients, which take `weight` s. layer: None for
    the ends.
    """

    name: str
    forward: Beats
    backward: Beats
    dgrad: Beats
    weight: Seconds
    share: Share
    layer: Layer | None = None


def units(model: Model, layout: Layout, s: Setting, part: Chunk) -> tuple[Unit, ...]:
    """A chunk's units in the order of forward."""
    before, after = shares.of_ends(model, layout)
    found: list[Unit] = []
    if part.embedding:
        if model.kind == "list":
            first = ends.of_work(listed(model, layout), s, before)
        else:
            first = ends.embedding(model, s, before)
        found.append(_end("embedding", first, before))
    at = part.first
    for layer, count in chunk.kinds(model, part.first, part.stop):
        one = _layer(layer, s, shares.of_layer(model, layer, layout))
        found += [Unit(f"layer {at + i}", *one, layer) for i in range(count)]
        at += count
    if part.head and model.kind != "list":
        head = _end("head", ends.head(model, s, after), after, _head_product(model, s))
        found.append(_with_more_tokens(model, layout, s, head) if model.mtp else head)
    return tuple(found)


def _end(name: str, both: tuple[Pass, Pass], share: Share, product: Seconds = 0.0) -> Unit:
    """product: s of each of the products that its hidden messages run beside."""
    ahead, back = both
    total, weight = back.spent.total, back.weight

    def beats(work: Seconds, sent: tuple[Sent, ...]) -> Beats:
        found = [
            Beat(product if m.exposed < m.message.duration else 0.0, "tp", m.message) for m in sent
        ]
        return Beat(work - sum(b.work for b in found)), *found

    return Unit(
        name, beats(ahead.spent.total, ahead.sent), beats(total, back.sent),
        beats(total - weight, back.sent), weight, share,
    )  # fmt: skip


def _head_product(model: Model, s: Setting) -> Seconds:
    return passes.products(operations.head(model, s.shape).matmuls, replace(s, narrow=False))


def _with_more_tokens(model: Model, layout: Layout, s: Setting, head: Unit) -> Unit:
    """The head after layers that predict further tokens (DeepSeek-V3)."""
    layer = model.stacks[-1][0]
    forward, backward, dgrad, weight, _ = _layer(layer, s, shares.of_layer(model, layer, layout))
    product = Matmul(s.shape.tokens, model.hidden / s.shape.tp, 2 * model.hidden)
    joined = _end("projection", ends.of_work(Work((product,)), s, Share()), Share())
    n = model.mtp
    return Unit(
        head.name,
        head.forward + n * (joined.forward + forward + head.forward),
        n * (head.backward + backward + joined.backward) + head.backward,
        n * (head.dgrad + dgrad + joined.dgrad) + head.dgrad,
        head.weight + n * (joined.weight + weight + head.weight),
        head.share,
    )


def _layer(layer: Layer, s: Setting, share: Share) -> tuple[Beats, Beats, Beats, Seconds, Share]:
    ahead = passes.forward(layer, s)
    back = passes.backward(layer, s, ahead, share.trained)
    forward = _forward(layer, s)
    again = forward if s.recompute == "full" else ()
    total = back.spent.total - (ahead.spent.total if again else 0.0)
    whole = _backward(layer, s, total)
    dgrad = _backward(layer, s, total - back.weight, split=True)
    return forward, again + whole, again + dgrad, back.weight, share


def _forward(layer: Layer, s: Setting) -> Beats:
    work = operations.forward(layer, s.hidden, s.shape)
    total = passes.seconds(work, s, backward=False).total
    halves = list(passes.halves(layer, work, s))
    rest = total - sum(map(sum, halves))
    found: list[Beat] = []
    attended = layer.attention is not None
    for i, (first, last) in enumerate(halves):
        middle = rest if i == 0 else 0.0
        inner = _context(work, s, middle, False) if i == 0 and attended else [Beat(middle)]
        found += _forward_half(s, first, inner, last)
    if isinstance(layer.feed, Experts):
        inside = passes.products(_of_experts(layer.feed, work), s)
        taken = _take(found, inside)
        there, back = _expert_messages(layer.feed, s)
        found += [*there, Beat(taken), *back]
    elif not halves:
        found.append(Beat(rest))
    return _merged(found)


def _backward(layer: Layer, s: Setting, total: Seconds, split: bool = False) -> Beats:
    """The input's gradient and, unless split, the weights' in `total` s of compute."""
    work = operations.forward(layer, s.hidden, s.shape)
    halves = list(passes.halves(layer, work, s))
    both = 1 if split or s.frozen else 2
    explicit = both * sum(map(sum, halves))
    rest = max(0.0, total - explicit)
    found: list[Beat] = []
    for i, (first, last) in reversed(list(enumerate(halves))):
        middle = rest if i == 0 else 0.0
        attended = i == 0 and layer.attention is not None
        inner = _context(work, s, middle, True) if attended else [Beat(middle)]
        found += _backward_half(s, first, inner, last, both == 2)
    if isinstance(layer.feed, Experts):
        inside = both * passes.products(_of_experts(layer.feed, work), s)
        taken = _take(found, inside)
        there, back = _expert_messages(layer.feed, s)
        found = [*there, Beat(taken), *back, *found]
    elif not halves:
        found.append(Beat(rest))
    return _merged(found)


def _forward_half(s: Setting, first: Seconds, inner: list[Beat], last: Seconds) -> list[Beat]:
    if s.shape.tp == 1:
        return [Beat(first), *inner, Beat(last)]
    tensor = partial(_tensor, s)
    if not s.shape.sequence_parallel:
        return [Beat(first), *inner, Beat(last), tensor("all_reduce")]
    piece = 1 / s.shape.tp
    if not s.tp_overlap:
        piece = 1.0
    return [
        tensor("all_gather", piece), tensor("all_gather", 1 - piece, first), *inner,
        tensor("reduce_scatter", 1 - piece, last), tensor("reduce_scatter", piece),
    ]  # fmt: skip


def _backward_half(
    s: Setting, first: Seconds, inner: list[Beat], last: Seconds, weights: bool
) -> list[Beat]:
    if s.shape.tp == 1:
        return [Beat((1 + weights) * last), *inner, Beat((1 + weights) * first)]
    tensor = partial(_tensor, s)
    beside = first if weights else 0.0  # wgrad
    if not s.shape.sequence_parallel:
        found = [Beat((1 + weights) * last), *inner, Beat(first)]
        if s.framework.async_dgrad:
            return [*found, tensor("all_reduce", 1.0, beside)]
        return [*found, Beat(beside), tensor("all_reduce")]
    piece = 1 / s.shape.tp if s.tp_overlap else 1.0
    found = [
        tensor("all_gather", piece), tensor("all_gather", 1 - piece, last),
        Beat(weights * last), *inner,
    ]  # fmt: skip
    if not s.framework.regathers:
        if s.tp_overlap:
            scatter = [tensor("reduce_scatter", 1 - piece, first), tensor("reduce_scatter", piece)]
        else:
            scatter = [Beat(first), tensor("reduce_scatter")]
        return [*found, *scatter, Beat(beside)]
    if s.frozen:
        return [*found, Beat(first), tensor("reduce_scatter")]
    return [*found, tensor("all_gather", 1.0, first), tensor("reduce_scatter", 1.0, beside)]


def _tensor(s: Setting, operation: str, times: float = 1.0, work: Seconds = 0.0) -> Beat:
    if not times:
        return Beat(work)
    return Beat(work, "tp", passes.tensor_message(operation, s), times)


def _context(work: Work, s: Setting, middle: Seconds, backward: bool) -> list[Beat]:
    """The core of attention and what is around it, `middle` s, with the ring beside it."""
    cp = s.shape.cp
    found: list[Beat] = []
    for core in work.cores if cp > 1 else ():
        fused = s.framework.fused_attention
        step = compute.core_seconds(core, s.device, s.values, fused, backward) / cp
        width = core.kv_heads * (core.width + core.value)
        nbytes = s.shape.tokens * width * s.shape.bytes * (1 + backward)
        ring = s.messages.of("send_recv", "cp", nbytes)
        found.append(Beat((cp - 1) * step, "cp", ring, cp - 1))
        middle -= (cp - 1) * step
    return [*found, Beat(max(0.0, middle))]


def _of_experts(feed: Experts, work: Work) -> tuple[Matmul, ...]:
    return work.matmuls[-(5 if feed.shared_width else 3) :]


def _expert_messages(feed: Experts, s: Setting) -> tuple[list[Beat], list[Beat]]:
    """What goes to the experts' ranks, and what comes back."""
    sent, shared = passes.expert_messages(feed, s)
    there = [] if sent is None else [Beat(0.0, "ep", sent)]
    back = list(there)
    if shared:
        gather, scatter = shared
        there.append(Beat(0.0, "tp", gather))
        back.insert(0, Beat(0.0, "tp", scatter))
    return there, back


def _take(found: list[Beat], seconds: Seconds) -> Seconds:
    """Takes as much compute as there is, but no more than `seconds`, out of beats of their own."""
    taken = 0.0
    for i, beat in enumerate(found):
        if beat.message is None:
            part = min(beat.work, seconds - taken)
            taken += part
            found[i] = Beat(beat.work - part)
    return taken


def _merged(found: list[Beat]) -> Beats:
    """The beats, neighbours without a message as one."""
    merged: list[Beat] = []
    for beat in found:
        if merged and merged[-1].message is None and beat.message is None:
            merged[-1] = Beat(merged[-1].work + beat.work)
        elif beat.work or beat.message is not None:
            merged.append(beat)
    return tuple(merged)
