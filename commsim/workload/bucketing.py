"""In how many messages gradients travel: frameworks fill buckets with whole tensors, up to a size.

ddp              25 MiB of 32-bit gradients (bucket_cap_mb)
deepspeed        5e8 elements (reduce_bucket_size, allgather_bucket_size; DeepSpeed 0.19.8,
                 runtime/zero/config.py)
megatron, nemo   40,000,000 elements, or 1,000,000 a rank where that is more, of the first chunk
                 of the first stage, if gradients are reduced beside backward; the others are one
                 (megatron-core 0.16.1, distributed/distributed_data_parallel.py)
else             a layer
"""

from __future__ import annotations

from functools import lru_cache

from commsim.workload.layer import Experts, Layer
from commsim.workload.layout import Layout
from commsim.workload.layouts.shares import Share
from commsim.workload.model import Model

SIZES = {"ddp": 25 * 2**20 / 4, "deepspeed": 5e8, "megatron": 4e7, "nemo": 4e7}
PER_RANK = 1e6
REPEATED = 8  # layers that show how buckets fill


def bucket_size(layout: Layout, first: bool) -> float:
    """Elements with which a bucket is full (0: each layer is one). first: of the first chunk of
    the first stage."""
    size = SIZES.get(layout.framework, 0.0)
    if layout.framework in ("megatron", "nemo"):
        if not (first and layout.overlap_grad_reduce):
            return float("inf")
        return max(size, PER_RANK * layout.dp * layout.cp)
    return size


def trained(
    model: Model, layer: Layer | None, share: Share, ep: int, expert: bool
) -> tuple[float, ...]:
    """Elements of the tensors whose gradients a rank exchanges of one unit, in order of
    registration: the experts' or all others. Every expert's are tensors of their own."""
    held = share.trained_expert if expert else share.trained_dense
    if not held:
        return ()
    if layer is None or model.lora is not None:
        return (held,)
    return _trained(layer, model.hidden, model.norm, held, ep, expert)


@lru_cache(maxsize=4096)
def _trained(
    layer: Layer, hidden: int, norm: str, held: float, ep: int, expert: bool
) -> tuple[float, ...]:
    tensors = layer.tensors(hidden, norm)
    sizes = [float(t.numel) for t in tensors if (t.split == "expert") == expert]
    if expert and isinstance(layer.feed, Experts):
        each = max(1, layer.feed.count // ep)
        sizes = [size / each for size in sizes] * each
    whole = sum(sizes)
    return tuple(held * size / whole for size in sizes)


@lru_cache(maxsize=4096)
def buckets_of(sizes: tuple[float, ...], full: float) -> float:
    """Buckets that a layer of such tensors fills, among others like it."""
    if not sizes or full == float("inf"):
        return 0.0
    if not full:
        return 1.0
    count, open_ = 0, 0.0
    for size in sizes[::-1] * REPEATED:
        open_ += size
        if open_ >= full:
            count, open_ = count + 1, 0.0
    return (count + open_ / full) / REPEATED
