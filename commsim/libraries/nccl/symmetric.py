"""Kernels on symmetric memory (2.27+): which one runs, its blocks, and the time (us) NCCL expects.

Where both buffers are registered as symmetric windows and every rank reaches every other by load
and store, NCCL leaves its rings and trees for these kernels without comparing the two:

    time = base + softplus(bytes / bandwidth - 1),  bandwidth = softmin(blocks x rate, peak, rate)

Source: NVIDIA NCCL, src/sym_kernels.cc of release 2.27. Nothing here registers buffers by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from commsim.units import GIB, Bytes

_UNIT: Final = 2**30 / 1e6  # bytes per us in what NCCL writes as 1 GB/s here
_LL_BELOW: Final = 2 * GIB  # bytes on the bus; more overflow LL's flags
_ALL_BELOW: Final = 64 * GIB
_CLOSE_ENOUGH: Final = 1.025  # blocks stop growing once this near the time of all of them
_PER_BLOCK: Final = 0.025  # what one more block must win
_MOST_BLOCKS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SymmetricKernel:
    """A kernel, its blocks and the expected time in us."""

    name: str
    blocks: int
    time_us: float


@dataclass(frozen=True, slots=True)
class _Form:
    """bus: bytes moved; gain: how much faster than plain loads and stores a block moves them."""

    name: str
    low_latency: bool
    multicast: bool
    bus: float
    gain: float
    most_blocks: int


def pick(
    operation: str, size: Bytes, n: int, capability: int, nvls: bool, most_blocks: int = 64
) -> SymmetricKernel | None:
    """The kernel NCCL runs for `size` bytes (nccl-tests' size) on n ranks; None: not with these."""
    best: SymmetricKernel | None = None
    score = math.inf
    for form in _forms(operation, size, n, capability):
        limit = _LL_BELOW if form.low_latency else _ALL_BELOW
        if (form.multicast and not nvls) or form.bus >= limit:
            continue
        top = max(1, min(form.most_blocks, most_blocks))
        slowest = _time(operation, form, top, capability) * _CLOSE_ENOUGH
        tries = ((b, _time(operation, form, b, capability)) for b in range(1, top + 1))
        blocks, time = next((b, t) for b, t in tries if t <= slowest)
        if time * (1 + _PER_BLOCK * blocks) < score:
            score = time * (1 + _PER_BLOCK * blocks)
            best = SymmetricKernel(name=form.name, blocks=blocks, time_us=time)
    return best


def _forms(operation: str, size: Bytes, n: int, capability: int) -> tuple[_Form, ...]:
    few = math.ceil((32 if capability >= 100 else 16) / n)
    many = _MOST_BLOCKS
    if operation == "all_reduce":
        part = float(size)
        return (
            _Form("AGxLL_R", True, False, 9 * n * part, 1.0, many),
            _Form("AGxLLMC_R", True, True, 9 * n * part, 1.1, many),
            _Form("RSxLD_AGxST", False, False, 2 * part * (n - 1) / n, 1.0, many),
            _Form("RSxLDMC_AGxSTMC", False, True, part + part / n, float(n), few),
        )
    part = size / n
    if operation == "all_gather":
        return (
            _Form("LL", True, False, 9 * n * part, 1.0, many),
            _Form("LLMC", True, True, 9 * n * part, 1.1, many),
            _Form("ST", False, False, (n - 1) * part, 1.0, many),
            _Form("STMC", False, True, (n - 1) * part, 0.55 * n, few),
        )
    if operation == "reduce_scatter":
        return (
            _Form("LL", True, False, 9 * n * part, 1.0, many),
            _Form("LD", False, False, (n - 1) * part, 1.0, many),
            _Form("LDMC", False, True, (n - 1) * part, 0.55 * n, few),
        )
    return ()


def _time(operation: str, form: _Form, blocks: int, capability: int) -> float:
    reduces = operation == "all_reduce"
    everything = form.name == "RSxLDMC_AGxSTMC"
    if capability < 100:
        base = 4.5 if form.low_latency else 7.8
        rate, peak = (65.0 if reduces else 44.0), (480.0 if everything else 320.0)
    else:
        if form.low_latency:
            base = 8.5 if operation == "all_gather" else 11.0
        else:
            base = 19.5 if reduces else 13.0
        rate, peak = 55.0, (1000.0 if everything else 600.0)
    rate, peak = rate * _UNIT, peak * _UNIT
    bandwidth = _softmin(blocks * rate * form.gain, peak, rate)
    return base + _softplus(form.bus / bandwidth - 1)


def _softmin(x: float, ceiling: float, smoothness: float) -> float:
    edge = math.expm1(ceiling / smoothness) * math.exp(-x / smoothness)
    return ceiling - smoothness * math.log1p(edge)


def _softplus(x: float) -> float:
    return x if x >= 100 else math.log1p(math.exp(x))
