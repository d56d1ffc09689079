"""What a forward pass keeps for the backward pass, in bytes on one rank.

Sizes of one layer follow Korthikanti et al. 2022, "Reducing Activation Recomputation in Large
Transformer Models", arXiv:2205.05198, section 4: with dropout, two plain matrices and as many
key-value as query heads they add up to its s b h (34 + 5 a s / h) of equation 1, and under tensor
and sequence parallelism to its equations 2 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass

from commsim.workload.keeping import keeping
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
    tokens = layout.micro_batch * layout.seq_len / layout.cp
    parts = _Parts(layer, hidden, layout)
    inputs = 2 * parts.hidden
    whole = parts.whole + parts.scores
    kept = whole
    if layout.recompute == "full":
        kept = inputs
    elif layout.recompute == "selective":
        kept = parts.whole
        if layout.framework in ("fsdp", "torchtitan"):
            kept = min(kept, inputs + parts.attention_output + parts.alternate)
    scale = tokens * (2.0 if layout.dtype == "float32" else 1.0)
    return LayerActivations(
        kept=kept * scale, whole=whole * scale, gradients=parts.gradients * scale
    )


def unfused(layout: Layout) -> bool:
    """Are the attention's scores written to memory, and dropout masks with them?

    So in float16 and in Megatron-DeepSpeed, the code of the years before FlashAttention (Dao et
    al. 2022, arXiv:2205.14135).
    """
    return layout.dtype == "float16" or layout.framework == "deepspeed"


def in_flight(layout: Layout, stage: int) -> int:
    """Micro-batches times chunks whose activations a stage holds at most.

    1F1B: min(m, p - i) (Narayanan et al., SOSP 2019, doi:10.1145/3341301.3359646); interleaved, v
    chunks: 2 (p - i - 1) + (v - 1) p + 1 (Megatron's warm-up and one more); GPipe: m v; ZB-H1: p on
    each stage (Qi et al., ICLR 2024, arXiv:2401.10241, section 3.1); DualPipe: p + 1 (DeepSeek-AI
    2024, arXiv:2412.19437, table 2).
    """
    p, v, m = layout.pp, layout.interleave, layout.micro_batches
    if p == 1:
        return v
    if layout.schedule == "gpipe":
        return m * v
    if layout.schedule == "dualpipe":
        return min(p + 1, m)
    after = p - stage - 1
    most = (after if v == 1 else 2 * after + (v - 1) * p) + 1
    if layout.schedule == "zero_bubble":
        most = max(most, p * v)
    return min(m * v, most)


class _Parts:
    """Bytes a token of everything a layer's backward reads, in 16-bit types."""

    def __init__(self, layer: Layer, hidden: int, layout: Layout) -> None:
        tp, sp = layout.tp, layout.tp if layout.sequence_parallel else 1
        old = unfused(layout)
        # Transformer Engine keeps the inputs of 8-bit products in 8 bits.
        narrow = layout.dtype == "float8" and layout.framework in ("megatron", "nemo")
        self.operand = 1.0 if narrow else 2.0
        self.hidden = hidden / sp
        gathered = hidden if keeping(layout).gathers_inputs else self.hidden
        masks = 2.0 * self.hidden if old else 0.0
        self.scores = self.attention_output = self.alternate = 0.0
        self.whole = self.gradients = 0.0
        if layer.attention is not None:
            self.whole += 2.0 * self.hidden + self.operand * gathered + masks / 2
            self._attention(layer.attention, tp, sp, layout.seq_len if old else 0)
        if layer.feed is not None:
            self.whole += 2.0 * self.hidden + self.operand * gathered + masks / 2
            self._feed(layer.feed, tp, sp, layout, hidden)

    def _attention(self, a: Attention, tp: int, sp: int, scored: int) -> None:
        heads, kv_heads = a.heads / tp, max(1.0, a.kv_heads / tp)
        queries, keys, values = heads * a.head_dim, kv_heads * a.head_dim, kv_heads * a.value_dim
        outputs = heads * a.value_dim
        ranks = 0.0
        if a.kv_rank is not None:  # latent attention runs on keys and values of every head
            keys, values = heads * a.head_dim, heads * a.value_dim
            ranks = ((a.q_rank or 0) + a.kv_rank + a.rope_dim) / sp
        self.attention_output = 2.0 * outputs
        if not scored:
            self.attention_output += 4.0 * heads  # each row's log-sum-exp
        self.whole += 2.0 * (queries + keys + values + ranks) + self.attention_output
        self.whole += (self.operand - 2.0) * outputs
        self.alternate += 2.0 * (queries + values)
        # softmax, its mask and its masked result: 5 bytes a score
        self.scores = 5.0 * scored * heads
        self.gradients = 2.0 * (queries + keys + values + outputs) + 4.0 * scored * heads

    def _feed(
        self, feed: FeedForward | Experts, tp: int, sp: int, layout: Layout, hidden: int
    ) -> None:
        if isinstance(feed, Experts):
            # Copies of a token on this rank, of all the tokens of its tensor-parallel group.
            copies = (IMBALANCE if layout.ep > 1 else 1.0) * feed.per_token * layout.expert_tp / tp
            self._matrices(copies * feed.width / layout.expert_tp, feed.gated)
            # each goes in, and comes out to be weighted and summed
            self.whole += copies * (self.operand + 2.0) * hidden
            self.whole += 4.0 * feed.count / sp
            self._matrices(feed.shared_width / tp, feed.gated)
        else:
            self._matrices(feed.width / tp, feed.gated)

    def _matrices(self, width: float, gated: bool) -> None:
        """Inputs of the activation function and of the last matrix."""
        inputs = 2.0 * width * (2 if gated else 1)
        self.whole += inputs + self.operand * width
        self.alternate += 2.0 * (width + self.hidden)
        self.gradients = max(self.gradients, inputs + 2.0 * width + 4.0 * self.hidden)
