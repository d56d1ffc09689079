"""What a GPU does for tokens that a served model reads (prefill) or writes (decode), forward only.

Counts are those of operations.py; different are

    experts    only those that some token visits: of E, for T tokens that visit k each,
               E (1 - (1 - k / E)^T) on average, routing being even
    decoding   attention reads the cache: batch x context x elements of a token, once
    latent     attention (DeepSeek-V2, arXiv:2405.04434, section 2.1.2) works on the compressed
               pair: the up-projections act on queries and outputs instead
    8 bit      inputs of products are cast once: read in 2 bytes, written in 1
    kernels    are launched from a graph: the host does not hold them up
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from commsim.units import Seconds
from commsim.workload import compute, operations
from commsim.workload.compute import Device, Spent
from commsim.workload.layer import Experts, Layer
from commsim.workload.layout import Layout
from commsim.workload.model import Model
from commsim.workload.operations import Core, Matmul, Shape, Work
from commsim.workload.serving.memory import cached

CAST = 3  # bytes moved to cast an element


@dataclass(frozen=True, slots=True)
class Tokens:
    """rows: tokens that run together on one attention replica. sequences: whose logits are wanted.
    context: tokens that each attends to when decoding; None: rows are prompts of `prompt` tokens.
    """

    rows: float
    sequences: float
    context: int | None = None
    prompt: int = 0


@dataclass(frozen=True, slots=True)
class Serving:
    """What all work of a served model shares. values: constants of compute, without the host's
    time and the training's casts; cache: bytes of an element of keys and values."""

    model: Model
    layout: Layout
    device: Device
    values: Mapping[str, float]
    cache: float

    @property
    def narrow(self) -> bool:
        """Products in 8 bit?"""
        return self.layout.dtype == "float8"


def distinct(experts: int, per_token: int, tokens: float) -> float:
    """Experts that some of the tokens visit, on average.

    >>> distinct(8, 2, 1), round(distinct(256, 8, 64))
    (2.0, 222)
    """
    missed: float = (1 - per_token / experts) ** tokens
    return experts * (1 - missed)


def of_layer(layer: Layer, s: Serving, t: Tokens) -> Spent:
    """One layer, s on one rank."""
    x = s.layout
    shape = Shape(batch=1, seq=max(1, round(t.rows)), tp=x.tp, ep=x.ep, etp=x.expert_tp)
    work = operations.forward(layer, s.model.hidden, shape)
    if isinstance(layer.feed, Experts):
        work = replace(work, matmuls=_visited(work.matmuls, layer.feed, s, t))
    spent = _seconds(replace(work, cores=()), s)
    if not work.cores:
        return spent
    if t.context is None:
        attention = _prompts(layer, work.cores[0], s, t)
    else:
        attention = _decoding(layer, work.cores[0], s, t)
    return spent + Spent(attention=attention, kernels=s.values["gap"])


def of_ends(s: Serving, t: Tokens, embedding: bool, head: bool) -> Spent:
    """The embedding of all rows, the head of one row a sequence."""
    found = Spent()
    plain = replace(s, layout=replace(s.layout, dtype="bfloat16"))
    if embedding:
        shape = Shape(batch=1, seq=max(1, round(t.rows)), tp=s.layout.tp)
        found += _seconds(operations.embedding(s.model, shape), plain)
    if head:
        shape = Shape(batch=1, seq=max(1, round(t.sequences)), tp=s.layout.tp)
        found += _seconds(operations.head(s.model, shape), plain)
    return found


def _seconds(work: Work, s: Serving) -> Spent:
    moved = work.moved
    if s.narrow:
        moved += CAST * sum(p.m * p.k * p.count for p in work.matmuls if p.narrow)
    return compute.seconds(
        replace(work, moved=moved), s.device, s.values, s.narrow, fused=True, backward=False
    )


def _visited(
    matmuls: tuple[Matmul, ...], feed: Experts, s: Serving, t: Tokens
) -> tuple[Matmul, ...]:
    """The products with the experts that are visited, each by more tokens."""
    everywhere = t.rows * (s.layout.dp if s.layout.ep > s.layout.tp else 1)
    share = distinct(feed.count, feed.per_token, everywhere) / feed.count
    return tuple(
        replace(p, count=p.count * share, m=p.m / share) if p.grouped else p for p in matmuls
    )


def _prompts(layer: Layer, core: Core, s: Serving, t: Tokens) -> Seconds:
    """Attention of prompts: as many as make up the rows."""
    a = layer.attention
    assert a is not None
    seen = a.keys_seen(t.prompt, causal_half=True) / t.prompt
    whole = replace(core, batch=t.rows / t.prompt, queries=t.prompt, keys=t.prompt, seen=seen)
    return compute.core_seconds(whole, s.device, s.values, True, False)


def _decoding(layer: Layer, core: Core, s: Serving, t: Tokens) -> Seconds:
    """One query a sequence over its cache: the slower of reading it and of the products."""
    a = layer.attention
    assert a is not None
    assert t.context is not None
    read = t.rows * cached(layer, replace(s.layout, seq_len=t.context)) * s.cache
    seen = min(t.context, a.window or t.context)
    width = a.head_dim + a.value_dim
    if a.kv_rank is not None:
        width = 2 * a.kv_rank + a.rope_dim
    flops = 2.0 * t.rows * core.heads * seen * width
    rate = s.device.ceiling * s.values["flash"]
    return max(read / (s.device.memory * s.values["stream"]), flops / rate)
