"""What a forward pass keeps for the backward pass, in bytes on one rank.

Sizes of one layer follow Korthikanti et al. 2022, "Reducing Activation Recomputation in Large
Transformer Models", arXiv:2205.05198, section 4: with dropout, two plain matrices and as many
key-value as query heads they add up to its s b h (34 + 5 a s / h) of equation 1, and under tensor
and sequence parallelism to its equations 2 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from commsim.workload import pipeline
from commsim.workload.footprint.keeping import keeping
from commsim.workload.frameworks import framework
from commsim.workload.layer import Attention, Experts, FeedForward, Layer
from commsim.workload.layout import Layout

# The rank with the most popular experts gets this much more than its share of tokens: the capacity
# factor of Fedus et al. 2021, "Switch Transformers", arXiv:2101.03961, section 2.2.
IMBALANCE = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerActivations:
    """Bytes of one layer and one micro-batch. kept: until its backward; whole: of all that its
    backward reads, a recomputed layer holds them at once; gradients: beside them while it works."""

    kept: float
    whole: float
    gradients: float


def of_layer(layer: Layer, hidden: int, layout: Layout) -> LayerActivations:
    """What one layer keeps of one micro-batch on one rank.

    recompute "none": everything. "full": its input. "selective": all but the attention's scores
    (Korthikanti et al., section 5); in fsdp and torchtitan what torchtitan's per-operator policy
    keeps: every second matrix product and the attention's output.
    """
    sp = layout.tp if layout.sequence_parallel else 1
    # Transformer Engine keeps the inputs of 8-bit products in 8 bits.
    narrow = layout.dtype == "float8" and layout.framework in ("megatron", "nemo")
    cut = _Cut(
        hidden=hidden,
        width=hidden / sp,
        tp=layout.tp,
        sp=sp,
        operand=1.0 if narrow else 2.0,
        keys=0 if framework(layout).fused_attention else layout.seq_len,
    )
    parts = _layer(layer, cut, layout)
    inputs = 2.0 * cut.width
    whole = kept = parts.whole + parts.scores
    if layout.recompute == "full":
        kept = inputs
    elif layout.recompute == "selective":
        kept = parts.whole
        if layout.framework in ("fsdp", "torchtitan"):
            kept = min(kept, inputs + parts.output + parts.alternate)
    tokens = layout.micro_batch * layout.seq_len / layout.cp
    scale = tokens * (2.0 if layout.dtype == "float32" else 1.0)
    return LayerActivations(
        kept=kept * scale, whole=whole * scale, gradients=parts.gradients * scale
    )


def in_flight(layout: Layout, stage: int, buffered: int = 0) -> int:
    """Micro-batches times chunks whose activations a stage holds at most.

    1F1B: min(m, p - i) (Narayanan et al., SOSP 2019, doi:10.1145/3341301.3359646); interleaved, v
    chunks: 2 (p - i - 1) + (v - 1) p + 1 (Megatron's warm-up and one more); GPipe: m v; ZB-H1: p on
    each stage (Qi et al., ICLR 2024, arXiv:2401.10241, section 3.1); DualPipe: p + 1 (DeepSeek-AI
    2024, arXiv:2412.19437, table 2). Any other schedule is played. buffered: so many more for each
    of the pipeline's stages. Raises UnknownNameError for a schedule.
    """
    p, v, m = layout.pp, layout.interleave, layout.micro_batches
    if p == 1:
        return v
    found = pipeline.pipeline(layout.schedule)
    after, name = p - stage - 1, found.names[0]
    if name == "1f1b":
        most = (after if v == 1 else 2 * after + (v - 1) * p) + 1
    elif name == "gpipe":
        most = m * v
    elif name == "zero_bubble":
        most = p if v == 1 else p * v + after
    elif name == "dualpipe":
        return min(p + 1, m)
    else:
        v = 2 if found.route == "v" else v
        most = pipeline.in_flight(found, p, m, v)[stage]
    return min(m * v, most + buffered * p)


class _Bytes(NamedTuple):
    """Bytes a token in 16-bit types. whole: of all that a backward reads, but for the attention's
    scores and their masks; output: of the attention; alternate: of every second product."""

    whole: float = 0.0
    scores: float = 0.0
    output: float = 0.0
    alternate: float = 0.0
    gradients: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """How a layout cuts activations. width: of the hidden state on one rank; operand: bytes of the
    inputs of products; keys: whose scores are written to memory."""

    hidden: int
    width: float
    tp: int
    sp: int
    operand: float
    keys: int

    def norm(self, layout: Layout) -> float:
        """Input and output of a norm; and the mask of the dropout after what it leads to."""
        gathered = self.hidden if keeping(layout).gathers_inputs else self.width
        mask = self.width if self.keys else 0.0
        return 2.0 * self.width + self.operand * gathered + mask

    def attention(self, a: Attention) -> _Bytes:
        """Queries, keys, values, output; scores: softmax, its mask and its masked result."""
        heads, kv_heads = a.heads / self.tp, max(1.0, a.kv_heads / self.tp)
        queries, output = heads * a.head_dim, heads * a.value_dim
        keys, values, ranks = kv_heads * a.head_dim, kv_heads * a.value_dim, 0.0
        if a.kv_rank is not None:  # latent attention runs on keys and values of every head
            keys, values = queries, output
            ranks = ((a.q_rank or 0) + a.kv_rank + a.rope_dim) / self.sp
        row_sums = 0.0 if self.keys else 4.0 * heads  # each row's log-sum-exp, where fused
        return _Bytes(
            whole=2.0 * (queries + keys + values + ranks) + self.operand * output + row_sums,
            scores=5.0 * self.keys * heads,
            output=2.0 * output + row_sums,
            alternate=2.0 * (queries + values),
            gradients=2.0 * (queries + keys + values + output) + 4.0 * self.keys * heads,
        )

    def feed(self, feed: FeedForward | Experts, layout: Layout) -> _Bytes:
        """Inputs of the activation function and of the last matrix."""
        if isinstance(feed, FeedForward):
            return self._matrices(feed.width / self.tp, feed.gated)
        # Copies of a token on this rank, of all the tokens of its tensor-parallel group.
        share = IMBALANCE if layout.ep > 1 else 1.0
        copies = share * feed.per_token * layout.expert_tp / self.tp
        routed = self._matrices(copies * feed.width / layout.expert_tp, feed.gated)
        shared = self._matrices(feed.shared_width / self.tp, feed.gated)
        # Each copy goes in, and comes out to be weighted and summed; and the router's scores.
        moved = copies * (self.operand + 2.0) * self.hidden + 4.0 * feed.count / self.sp
        return _Bytes(
            whole=routed.whole + shared.whole + moved,
            alternate=routed.alternate + shared.alternate + copies * 2.0 * self.hidden,
            gradients=routed.gradients,
        )

    def _matrices(self, width: float, gated: bool) -> _Bytes:
        inputs = 2.0 * width * (2 if gated else 1)
        return _Bytes(
            whole=inputs + self.operand * width,
            alternate=2.0 * (width + self.width),
            gradients=inputs + 2.0 * width + 4.0 * self.width,
        )


def _layer(layer: Layer, cut: _Cut, layout: Layout) -> _Bytes:
    attention = cut.attention(layer.attention) if layer.attention is not None else _Bytes()
    feed = cut.feed(layer.feed, layout) if layer.feed is not None else _Bytes()
    both = layer.attention is not None and layer.feed is not None and not layer.parallel
    return _Bytes(
        whole=attention.whole + feed.whole + (2 if both else 1) * cut.norm(layout),
        scores=attention.scores,
        output=attention.output,
        alternate=attention.alternate + feed.alternate,
        gradients=max(attention.gradients, feed.gradients),
    )
