"""One layer's forward and backward for one micro-batch: compute, messages, and what of them shows.

A message is hidden by the products that the framework runs beside it:

    tensor parallel, forward    all_reduce, or all_gather and reduce_scatter: exposed
    backward                    all_gather of the output's gradient: exposed; of the input: beside
                                dgrad; the reduction of the input's gradient: beside wgrad
                                (Korthikanti et al., arXiv:2205.05198, section 4.2.2); without
                                that, as under DTensor: exposed
    tp_comm_overlap             every message cut into tp pieces beside its product (Transformer
                                Engine's user buffers): the first piece shows, and what outlasts it
    context parallel            a ring of keys and values, each step beside its part of attention
                                (Liu et al., arXiv:2310.01889)
    experts                     all_to_all there and back: exposed
    experts with dualpipe       beside the compute of the forward and the backward that run as one
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from commsim.units import Seconds
from commsim.workload import compute, operations
from commsim.workload.communication import Message, Messages
from commsim.workload.compute import Device, Spent
from commsim.workload.frameworks import Framework
from commsim.workload.layer import Experts, Layer
from commsim.workload.operations import Matmul, Shape, Work


@dataclass(frozen=True, slots=True)
class Sent:
    """`count` messages along a dimension of the layout; exposed: s of each that nothing hides."""

    kind: str
    message: Message
    exposed: Seconds
    count: float = 1.0


NOTHING = Spent()


@dataclass(frozen=True, slots=True)
class Pass:
    """Forward or backward of one or more layers: s of compute by kind, messages; weight: s of the
    products that nobody waits for (the weights' gradients)."""

    spent: Spent = NOTHING
    sent: tuple[Sent, ...] = ()
    weight: Seconds = 0.0

    @property
    def exposed(self) -> Seconds:
        """s that compute waits for messages."""
        return sum(m.exposed * m.count for m in self.sent)

    @property
    def total(self) -> Seconds:
        """s in all."""
        return self.spent.total + self.exposed

    def plus(self, other: Pass, times: int = 1) -> Pass:
        """This and `times` the other."""
        sent = other.sent
        if times != 1:
            sent = tuple(replace(m, count=m.count * times) for m in sent)
        return Pass(
            self.spent + other.spent * times, self.sent + sent, self.weight + other.weight * times
        )


@dataclass(frozen=True, slots=True)
class Setting:
    """What all passes of a step share. values: the profile's constants for this device and
    framework; narrow: products in 8 bit; split: the weights' gradients come later, and nothing runs
    beside the reduction of the input's; paired: forwards run with backwards."""

    shape: Shape
    device: Device
    values: Mapping[str, float]
    framework: Framework
    messages: Messages
    hidden: int
    narrow: bool
    recompute: str
    tp_overlap: bool
    frozen: bool = False
    split: bool = False
    paired: bool = False


def forward(layer: Layer, s: Setting) -> Pass:
    """One layer, forward."""
    work = operations.forward(layer, s.hidden, s.shape)
    sent = (*_tensor_forward(layer, work, s), *_experts(layer, s), *_context(work, s, False))
    return Pass(seconds(work, s, backward=False), sent)


def backward(layer: Layer, s: Setting, ahead: Pass, trained: float = 0.0) -> Pass:
    """One layer, backward, with what it computes anew of its forward pass `ahead`, and the sums of
    the gradients of `trained` parameters."""
    work = operations.forward(layer, s.hidden, s.shape)
    back = operations.backward(work, s.frozen)
    sent = (*_tensor_backward(layer, work, s), *_experts(layer, s), *_context(work, s, True))
    summed = summing(trained, s)
    weight = summed.traffic
    if not s.frozen:
        weight += products(tuple(p for p in back.matmuls if p.of_weight), s)
    found = Pass(seconds(back, s, backward=True) + summed, sent, weight)
    if s.recompute == "full":
        return found.plus(ahead)
    if s.recompute == "selective":
        return found.plus(Pass(selective(ahead.spent, s)))
    return found


def seconds(work: Work, s: Setting, backward: bool) -> Spent:
    """What a piece of work takes here, s."""
    f = s.framework
    return compute.seconds(work, s.device, s.values, s.narrow, f.fused_attention, backward, f.waits)


def summing(trained: float, s: Setting) -> Spent:
    """What adding up the gradients of so many parameters takes in one micro-batch, s."""
    nbytes = trained * s.framework.summing_bytes
    return Spent(traffic=nbytes / (s.device.memory * s.values["stream"]))


def selective(spent: Spent, s: Setting) -> Spent:
    """What selective recompute repeats: Megatron the core of attention, fused or not (megatron-core
    0.16.1, transformer/attention.py, _checkpointed_attention_forward); torchtitan and FSDP every
    second product and all that is cheap."""
    if s.framework.stack in ("torchtitan", "fsdp"):
        return Spent(spent.products / 2, 0.0, spent.traffic, spent.kernels)
    return Spent(attention=spent.attention)


def products(matmuls: tuple[Matmul, ...], s: Setting) -> Seconds:
    """What so many matrix products take together, s."""
    return sum(compute.product_seconds(p, s.device, s.values, s.narrow) for p in matmuls)


def halves(layer: Layer, work: Work, s: Setting) -> Iterator[tuple[Seconds, Seconds]]:
    """For each half of the layer that tensor parallelism surrounds with messages: s of its
    column-parallel products and of its row-parallel one."""
    split = len(work.matmuls)
    if isinstance(layer.feed, Experts):
        split -= 5 if layer.feed.shared_width else 3
    elif layer.feed is not None:
        split -= 2
    if layer.attention is not None:
        yield products(work.matmuls[: split - 1], s), products(work.matmuls[split - 1 : split], s)
    if layer.feed is not None and not isinstance(layer.feed, Experts):
        yield products(work.matmuls[split:-1], s), products(work.matmuls[-1:], s)


def beside(message: Seconds, work: Seconds, s: Setting) -> Seconds:
    """What shows of a message beside work, s: what outlasts it, or by what it slows the work."""
    return max(message - work, s.values["slowed"] * message)


def _in_pieces(message: Seconds, work: Seconds, s: Setting) -> Seconds:
    """The same, cut into tp pieces: the first one shows too."""
    pieces = s.shape.tp
    return message / pieces + beside(message * (1 - 1 / pieces), work, s)


def tensor_message(operation: str, s: Setting) -> Message:
    """What tensor parallelism sends of one micro-batch's hidden state. Inputs and gradients of
    products in 8 bit are gathered in 8 bit (Transformer Engine 2.20.2, module/layernorm_linear.py;
    torchao 0.18, float8/float8_tensor_parallel.py); sums stay in 16."""
    width = 1 if s.narrow and operation == "all_gather" else s.shape.bytes
    return s.messages.of(operation, "tp", s.shape.tokens * s.hidden * width)


def _tensor_forward(layer: Layer, work: Work, s: Setting) -> Iterator[Sent]:
    if s.shape.tp == 1:
        return
    for first, last in halves(layer, work, s):
        if not s.shape.sequence_parallel:
            m = tensor_message("all_reduce", s)
            yield Sent("tp", m, m.duration)
            continue
        for operation, near in (("all_gather", first), ("reduce_scatter", last)):
            m = tensor_message(operation, s)
            yield Sent("tp", m, _in_pieces(m.duration, near, s) if s.tp_overlap else m.duration)


def _tensor_backward(layer: Layer, work: Work, s: Setting) -> Iterator[Sent]:
    if s.shape.tp == 1:
        return
    weights = not (s.frozen or s.split)
    for first, last in halves(layer, work, s):
        if not s.shape.sequence_parallel:
            m = tensor_message("all_reduce", s)
            hidden = s.framework.async_dgrad and weights
            yield Sent("tp", m, beside(m.duration, first, s) if hidden else m.duration)
            continue
        gather = tensor_message("all_gather", s)
        scatter = tensor_message("reduce_scatter", s)
        shown = _in_pieces(gather.duration, last, s) if s.tp_overlap else gather.duration
        yield Sent("tp", gather, shown)
        if not s.framework.regathers:
            shown = _in_pieces(scatter.duration, first, s) if s.tp_overlap else scatter.duration
            yield Sent("tp", scatter, shown)
            continue
        if not s.frozen:  # the input again, for the weight's gradient
            yield Sent("tp", gather, beside(gather.duration, first, s))
        yield Sent("tp", scatter, beside(scatter.duration, first if weights else 0.0, s))


def expert_messages(feed: Experts, s: Setting) -> tuple[Message | None, tuple[Message, ...]]:
    """What goes to the experts' ranks and, as much, comes back; what the ranks that share an expert
    gather and reduce."""
    shape = s.shape
    nbytes = shape.tokens / shape.tp * feed.per_token * s.hidden * shape.bytes
    sent: Message | None = None
    shared: tuple[Message, ...] = ()
    if shape.ep > 1:
        if s.framework.one_copy:
            sent = s.messages.dispatch(nbytes, feed.per_token)
        else:
            sent = s.messages.of("all_to_all", "ep", nbytes)
    if shape.etp > 1:
        shared = tuple(
            s.messages.of(operation, "etp", nbytes * shape.etp)
            for operation in ("all_gather", "reduce_scatter")
        )
    return sent, shared


def _experts(layer: Layer, s: Setting) -> Iterator[Sent]:
    if not isinstance(layer.feed, Experts):
        return
    sent, shared = expert_messages(layer.feed, s)
    if sent is not None:
        yield Sent("ep", sent, sent.duration, 2)
    for m in shared:
        yield Sent("tp", m, m.duration)


def together(ahead: Pass, back: Pass, s: Setting) -> tuple[Pass, Pass]:
    """A forward and a backward that run as one, tokens on their way to and from experts beside the
    compute of both.

    As if kernels were placed by hand to hide all that can be (DeepSeek-AI, arXiv:2412.19437,
    section 3.2.1); played (tasks/works.py), which takes tasks in turns, a third more may show.
    """
    work = ahead.spent.total + back.spent.total
    messages = sum(m.exposed * m.count for m in (*ahead.sent, *back.sent) if m.kind == "ep")
    if not messages:
        return ahead, back
    share = beside(messages, work, s) / messages

    def shown(found: Pass) -> Pass:
        sent = tuple(
            replace(m, exposed=m.exposed * share) if m.kind == "ep" else m for m in found.sent
        )
        return replace(found, sent=sent)

    return shown(ahead), shown(back)


def _context(work: Work, s: Setting, backward: bool) -> Iterator[Sent]:
    cp = s.shape.cp
    if cp == 1:
        return
    for core in work.cores:
        fused = s.framework.fused_attention
        step = compute.core_seconds(core, s.device, s.values, fused, backward) / cp
        width = core.kv_heads * (core.width + core.value)
        nbytes = s.shape.tokens * width * s.shape.bytes * (1 + backward)  # and their gradients
        m = s.messages.of("send_recv", "cp", nbytes)
        yield Sent("cp", m, beside(m.duration, step, s), cp - 1)
