"""Compressed all_reduce: what is sent instead of a gradient, and what it costs to make it.

Bytes are exact. Encoding and decoding are memory-bound kernels: their time is the HBM traffic that
the arithmetic needs, each pass over a tensor counted once per read and once per write, over the
memory's bandwidth. Neglected: the few FLOPs, and what accuracy is lost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from commsim.errors import ScheduleError
from commsim.units import Bytes
from commsim.workload.overlap import Parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One step: a kernel that moves `traffic` bytes of HBM, then, unless "", an operation of
    `nbytes`."""

    traffic: float
    operation: str = ""
    nbytes: Bytes = 0


class Compression(ABC):
    """A way to reduce gradients with fewer bytes."""

    __slots__ = ()

    @abstractmethod
    def moves(self, parameters: Sequence[Parameter], ranks: int) -> tuple[Move, ...]:
        """What happens to a bucket of these parameters on a group of so many ranks, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncompressed(Compression):
    """all_reduce of the gradients as they are."""

    def moves(self, parameters: Sequence[Parameter], ranks: int) -> tuple[Move, ...]:
        """One all_reduce."""
        nbytes = sum(p.nbytes for p in parameters)
        return (Move(traffic=0.0, operation="all_reduce", nbytes=nbytes),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Half(Compression):
    """all_reduce in 16 bit (PyTorch's fp16_compress_hook and bf16_compress_hook)."""

    def moves(self, parameters: Sequence[Parameter], ranks: int) -> tuple[Move, ...]:
        """Cast there (read all, write 2 bytes an element), all_reduce, cast back."""
        whole = sum(p.nbytes for p in parameters)
        half = 2 * sum(p.numel for p in parameters)
        return (
            Move(traffic=whole + half, operation="all_reduce", nbytes=half),
            Move(traffic=whole + half),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSgd(Compression):
    """A gradient matrix M (n x m) as P Q^T of a rank, with error feedback, in 32 bit.

    P = M Q is reduced, made orthogonal, and Q = M^T P reduced: 4 rank (n + m) bytes instead of
    4 n m. Matrices for which that saves less than `least` times, and vectors, go as they are.
    Source: Vogels et al., "PowerSGD", NeurIPS 2019, arXiv:1905.13727; PyTorch's powerSGD_hook,
    whose min_compression_rate is 2.
    """

    rank: int = 1
    least: float = 2.0

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ScheduleError(f"PowerSGD: rank: expected 1 or more, got {self.rank}")

    def sides(self, parameter: Parameter) -> tuple[int, int] | None:
        """n and m of the matrix, the first dimension against the rest; None: goes as it is."""
        if len(parameter.shape) < 2:
            return None
        n = parameter.shape[0]
        m = parameter.numel // max(n, 1)
        return (n, m) if (n + m) * self.rank * self.least < n * m else None

    def moves(self, parameters: Sequence[Parameter], ranks: int) -> tuple[Move, ...]:
        """The vectors and small matrices; all P; all Q; the approximation and what it misses.

        Traffic of an element: gradient and error read, their sum written (12 bytes); read for P
        (4); read for Q (4); read again, approximation and error written (12).
        """
        sides = [self.sides(p) for p in parameters]
        plain = sum(p.nbytes for p, s in zip(parameters, sides, strict=True) if s is None)
        p_bytes = sum(4 * self.rank * s[0] for s in sides if s)
        q_bytes = sum(4 * self.rank * s[1] for s in sides if s)
        numel = sum(s[0] * s[1] for s in sides if s)
        found = [Move(traffic=0.0, operation="all_reduce", nbytes=plain)] if plain else []
        if numel:
            found += [
                Move(traffic=16.0 * numel + p_bytes, operation="all_reduce", nbytes=p_bytes),
                Move(traffic=4.0 * numel + 2 * p_bytes, operation="all_reduce", nbytes=q_bytes),
                Move(traffic=12.0 * numel + p_bytes + q_bytes),
            ]
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantized(Compression):
    """Each element in 1, 2, 4 or 8 bits, a 32-bit scale a block, with error feedback.

    Every rank gathers one share of all ranks' bits (all_to_all), averages it, quantizes the
    average and gives it to all (all_gather). block: elements with one scale (None: a share).
    Sources: Tang et al., "1-bit Adam", ICML 2021, arXiv:2102.02888, and DeepSpeed's
    compressed_allreduce; Seide et al., "1-bit stochastic gradient descent", Interspeech 2014.
    """

    bits: int = 1
    block: int | None = None

    def __post_init__(self) -> None:
        if self.bits not in (1, 2, 4, 8):
            raise ScheduleError(f"quantized: bits: expected 1, 2, 4 or 8, got {self.bits}")

    def moves(self, parameters: Sequence[Parameter], ranks: int) -> tuple[Move, ...]:
        """Quantize, all_to_all; average and quantize a share, all_gather; restore.

        The buffer is padded so that each rank's share is whole bytes. Traffic of an element:
        gradient and error read, their sum written (12 bytes), read for the scale (4), read, error
        and bits written (8); the share's bits read, 16 bytes of 32-bit average, error and scale;
        bits read, 32-bit result written (4).
        """
        numel = sum(p.numel for p in parameters)
        per_byte = 8 // self.bits
        share = -(-numel // (ranks * per_byte)) * per_byte
        scales = -(-share // self.block) if self.block else 1
        sent = ranks * (share // per_byte + 4 * scales)
        return (
            Move(traffic=24.0 * numel + sent, operation="all_to_all", nbytes=sent),
            Move(traffic=sent + 16.0 * share + sent / ranks, operation="all_gather", nbytes=sent),
            Move(traffic=sent + 4.0 * numel),
        )


def sent_bytes(compression: Compression, parameters: Sequence[Parameter], ranks: int) -> Bytes:
    """Bytes of all operations of a bucket; of an uncompressed one its gradients' size."""
    return sum(move.nbytes for move in compression.moves(parameters, ranks))
