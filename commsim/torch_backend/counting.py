"""What a kernel has to do: the matrix product, the attention or the bytes of an op of torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from commsim.workload.operations import Core, Matmul

ATEN = torch.ops.aten
PRODUCTS = {  # the places of a product's operands
    ATEN.mm: (0, 1), ATEN.addmm: (1, 2), ATEN.bmm: (0, 1), ATEN.baddbmm: (1, 2),
    ATEN._scaled_mm: (0, 1),
}  # fmt: skip
CONVOLUTIONS = {ATEN.convolution: 0, ATEN._convolution: 0, ATEN.convolution_backward: 1}
CAUSAL = 0.5  # of a causal map that a query may look at

Counted = Matmul | tuple[Core, bool]
Count = Callable[[Any, Any, Any], Counted]


def counter_of(packet: Any, schema: Any) -> Count | None:
    """What counts an op (all its overloads) by its arguments and result; None: it moves bytes."""
    if packet in PRODUCTS:
        return _products(*PRODUCTS[packet])
    if packet in CONVOLUTIONS:
        return _convolutions(CONVOLUTIONS[packet], flop_registry[packet])
    names = [argument.name for argument in schema.arguments]
    if "scaled_dot_product" in schema.name and {"query", "key", "value"} <= set(names):
        return _attention(names, "backward" in schema.name)
    return None


def _products(first: int, second: int) -> Count:
    def count(args: Any, kwargs: Any, out: Any) -> Matmul:
        a, b = args[first], args[second]
        *batch, m, k = a.shape
        return Matmul(m=m, n=b.shape[-1], k=k, count=math.prod(batch))

    return count


def _convolutions(place: int, flops: Callable[..., int]) -> Count:
    """As products of the images' pixels by the filters; torch counts how many there are."""

    def count(args: Any, kwargs: Any, out: Any) -> Matmul:
        image, filters = args[place], args[place + 1]
        made = args[0] if place else out
        m, n = made.numel() / made.shape[1], filters.shape[0]
        k, taps = filters.numel() / n, math.prod(filters.shape[2:])
        many = flops(*args, **kwargs, out_val=out) / (2.0 * m * n * k)
        elements = image.numel() + filters.numel() + made.numel()
        return Matmul(m=m, n=n, k=k, count=many, taps=taps, elements=elements)

    return count


def _attention(names: list[str], backward: bool) -> Count:
    places = {name: i for i, name in enumerate(names)}

    def given(args: Any, kwargs: Any, name: str) -> Any:
        place = places.get(name, len(args))
        return args[place] if place < len(args) else kwargs.get(name)

    def count(args: Any, kwargs: Any, out: Any) -> tuple[Core, bool]:
        query, key, value = (given(args, kwargs, name) for name in ("query", "key", "value"))
        batch, heads, queries, width = query.shape
        core = Core(
            batch=batch, heads=heads, queries=queries, keys=key.shape[-2], width=width,
            value=value.shape[-1], kv_heads=key.shape[1],
            seen=CAUSAL if given(args, kwargs, "is_causal") else 1.0,
        )  # fmt: skip
        return core, backward

    return count
