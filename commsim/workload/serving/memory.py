"""Memory that inference takes on each rank: weights, and the cache of keys and values."""

from __future__ import annotations

from commsim.errors import UnknownNameError
from commsim.topology.cluster import Cluster
from commsim.workload.layer import Experts, Layer
from commsim.workload.layout import Layout
from commsim.workload.layouts import shares
from commsim.workload.layouts.groups import groups
from commsim.workload.layouts.stages import contents
from commsim.workload.memory import CONTEXT, USABLE, Memory, StageMemory, communicators
from commsim.workload.model import Model

ELEMENT = {"float32": 4, "bfloat16": 2, "float16": 2, "float8": 1}
# Tokens of prompts that run through the model at a time (vLLM's max_num_batched_tokens).
CHUNK = 8192


def serving_memory(
    model: Model, cluster: Cluster, layout: Layout, cache_dtype: str = "bfloat16"
) -> Memory:
    """Bytes of memory that inference takes on every rank.

    parameters x their bytes (of layout.dtype) + micro_batch sequences x seq_len tokens x keys and
    values of the stage's layers + one layer at work on a chunk of prompts + one row of logits a
    sequence. Heads of keys and values are spread over tensor-parallel ranks as far as there are
    some (the compressed pair of latent attention is not), tokens over context-parallel ones.
    Neglected: blocks of the cache that are not full; servers that take all memory in advance.
    Raises UnknownNameError for a dtype.
    """
    for dtype in (layout.dtype, cache_dtype):
        if dtype not in ELEMENT:
            raise UnknownNameError("dtype", dtype, ELEMENT)
    width = ELEMENT[layout.dtype]
    before, after = shares.of_ends(model, layout)
    first = groups(layout).ranks("pp")
    distinct, which = contents(model, layout)
    nccl = communicators(layout, cluster.gpu)
    tokens = min(CHUNK, layout.micro_batch * layout.seq_len)
    found = []
    for stage, kind in enumerate(which):
        held = distinct[kind]
        weights = before.total * held.embedding + after.total * held.head
        weights += sum(shares.of_layer(model, each, layout).total * n for each, n in held.layers)
        rows = layout.micro_batch * model.vocab / layout.tp * held.head
        working = max((_inner(layer) for layer, _ in held.layers), default=0)
        found.append(
            StageMemory(
                stage=stage,
                rank=first[stage],
                moment="prefill",
                parameters=width * weights,
                gradients=0.0,
                optimizer=0.0,
                activations=2.0 * tokens * (2 * model.hidden + working / layout.tp),
                logits=4.0 * rows,
                buffers=0.0,
                cache=ELEMENT[cache_dtype]
                * layout.micro_batch
                * sum(n * cached(layer, layout) for layer, n in held.layers),
                margin=0.0,
                cached=0.0,
                nccl=nccl,
                context=CONTEXT,
            )
        )
    return Memory(by_stage=tuple(found), capacity=cluster.gpu.memory * USABLE, shows="device")


def cached(layer: Layer, layout: Layout) -> float:
    """Elements that a layer keeps of one sequence on one rank."""
    attention = layer.attention
    if attention is None or not attention.causal:
        return 0.0
    tokens = min(layout.seq_len, attention.window or layout.seq_len)
    ways = 1 if attention.kv_rank is not None else min(layout.tp, attention.kv_heads)
    return attention.kv_elements * tokens / (ways * layout.cp)


def _inner(layer: Layer) -> int:
    """Elements of a token between a layer's first and last matrices."""
    attention, feed = layer.attention, layer.feed
    heads = 0
    if attention is not None:
        heads = attention.heads * attention.head_dim + attention.heads * attention.value_dim
    if feed is None:
        return heads
    width = feed.width * (feed.per_token if isinstance(feed, Experts) else 1)
    return max(heads, width * (3 if feed.gated else 2))
