"""What a collective of torch.distributed asks for: its tensors as buffers, its size, its root."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from commsim.torch_backend import movers
from commsim.torch_backend.movers import Buffers, Tensor
from commsim.torch_backend.records import Mover
from commsim.torch_backend.tensors import counts_of, nbytes_of, pieces, size_of
from commsim.units import Bytes

Tensors = Sequence[Tensor]
Lists = Sequence[Tensors]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Asked:
    """One rank's side of a collective, as `records.Call` describes it.

    writes, reads: the tensors that are the operation's until it is over. root: a place in the
    group. reduce_op: torch's.
    """

    function: str
    operation: str
    move: Mover
    buffers: tuple[Buffers, ...] = ()
    writes: Tensors = ()
    reads: Tensors = ()
    nbytes: Bytes = 0
    counts: tuple[int, ...] = ()
    root: int | None = None
    reduce_op: Any = None
    splits: tuple[Bytes, ...] | None = None
    expects: tuple[Bytes, ...] | None = None


def all_reduce(tensors: Tensors, op: Any) -> Asked:
    """Each tensor is reduced in place."""
    return Asked(
        function="all_reduce", operation="all_reduce", move=movers.all_reduce, writes=tensors,
        buffers=tuple(Buffers(inputs=(t,), op=op) for t in tensors), nbytes=nbytes_of(tensors),
        counts=counts_of(tensors), reduce_op=op,
    )  # fmt: skip


def reduce(tensors: Tensors, op: Any, root: int) -> Asked:
    """Each tensor is reduced into the root's."""
    return Asked(
        function="reduce", operation="reduce", move=movers.reduce, writes=tensors,
        buffers=tuple(Buffers(inputs=(t,), op=op) for t in tensors), nbytes=nbytes_of(tensors),
        counts=counts_of(tensors), reduce_op=op, root=root,
    )  # fmt: skip


def broadcast(tensors: Tensors, root: int) -> Asked:
    """Each tensor becomes the root's."""
    return Asked(
        function="broadcast", operation="broadcast", move=movers.broadcast, writes=tensors,
        buffers=tuple(Buffers(inputs=(t,)) for t in tensors), nbytes=nbytes_of(tensors),
        counts=counts_of(tensors), root=root,
    )  # fmt: skip


def all_gather(function: str, outputs: Lists, inputs: Tensors, place: int) -> Asked:
    """outputs[i] gets every rank's inputs[i]; sizes may differ where all ranks know them.

    Raises ValueError where the output at the rank's own place does not fit its input.
    """
    sizes = [tuple(t.numel() for t in out) for out in outputs]
    even = all(len(set(each)) == 1 for each in sizes)
    for value, each in zip(inputs, sizes, strict=True):
        if not even and each[place] != value.numel():
            raise ValueError(
                f"{function}: the output for this rank has {each[place]} elements, its input "
                f"{value.numel()}"
            )
    flat = [t for out in outputs for t in out]
    return Asked(
        function=function, operation="all_gather", move=movers.all_gather, writes=flat,
        reads=inputs, nbytes=nbytes_of(flat),
        buffers=tuple(
            Buffers(inputs=(value,), outputs=tuple(out))
            for value, out in zip(inputs, outputs, strict=True)
        ),
        counts=counts_of(inputs) if even else tuple(n for each in sizes for n in each),
    )  # fmt: skip


def all_gather_single(function: str, outputs: Tensors, inputs: Tensors, n: int) -> Asked:
    """outputs[i] gets every rank's inputs[i], one after the other. Raises ValueError by size."""
    for output, value in zip(outputs, inputs, strict=True):
        if output.numel() != n * value.numel():
            raise ValueError(
                f"output tensor size must be equal to world_size times input tensor size: "
                f"{output.numel()} != {n} * {value.numel()}"
            )
    return Asked(
        function=function, operation="all_gather", move=movers.all_gather, writes=outputs,
        reads=inputs, nbytes=nbytes_of(outputs), counts=counts_of(inputs),
        buffers=tuple(
            Buffers(inputs=(value,), outputs=tuple(pieces(output, n)))
            for value, output in zip(inputs, outputs, strict=True)
        ),
    )  # fmt: skip


def gather(outputs: Tensors, inputs: Tensors, root: int, n: int, function: str = "gather") -> Asked:
    """The root's outputs get every rank's input."""
    return Asked(
        function=function, operation="gather", move=movers.gather, writes=outputs, reads=inputs,
        buffers=(Buffers(inputs=tuple(inputs), outputs=tuple(outputs)),),
        nbytes=nbytes_of(inputs) * n, counts=counts_of(inputs), root=root,
    )  # fmt: skip


def scatter(outputs: Tensors, inputs: Tensors, root: int, n: int) -> Asked:
    """Every rank's output gets its part of the root's inputs."""
    return Asked(
        function="scatter", operation="scatter", move=movers.scatter, writes=outputs, reads=inputs,
        buffers=(Buffers(inputs=tuple(inputs), outputs=tuple(outputs)),),
        nbytes=nbytes_of(outputs) * n, counts=counts_of(outputs), root=root,
    )  # fmt: skip


def reduce_scatter(outputs: Tensors, inputs: Lists, op: Any) -> Asked:
    """outputs[i] gets the rank's part of the reduced inputs[i]."""
    flat = [t for each in inputs for t in each]
    sizes = [tuple(t.numel() for t in each) for each in inputs]
    even = all(len(set(each)) == 1 for each in sizes)
    return Asked(
        function="reduce_scatter", operation="reduce_scatter", move=movers.reduce_scatter,
        writes=outputs, reads=flat, nbytes=nbytes_of(flat), reduce_op=op,
        buffers=tuple(
            Buffers(inputs=tuple(each), outputs=(output,), op=op)
            for output, each in zip(outputs, inputs, strict=True)
        ),
        counts=counts_of(outputs) if even else tuple(n for each in sizes for n in each),
    )  # fmt: skip


def reduce_scatter_single(
    function: str, outputs: Tensors, inputs: Tensors, op: Any, n: int
) -> Asked:
    """The same, of the equal parts of each input. Raises ValueError by size."""
    for output, value in zip(outputs, inputs, strict=True):
        if value.numel() != n * output.numel():
            raise ValueError(
                f"input tensor must be the same size as output size times world size: "
                f"{value.numel()} != {n} * {output.numel()}"
            )
    return Asked(
        function=function, operation="reduce_scatter", move=movers.reduce_scatter, writes=outputs,
        reads=inputs, nbytes=nbytes_of(inputs), counts=counts_of(outputs), reduce_op=op,
        buffers=tuple(
            Buffers(inputs=tuple(pieces(value, n)), outputs=(output,), op=op)
            for output, value in zip(outputs, inputs, strict=True)
        ),
    )  # fmt: skip


def all_to_all(function: str, outputs: Tensors, inputs: Tensors) -> Asked:
    """outputs[i] gets rank i's input for this rank."""
    return Asked(
        function=function, operation="all_to_all", move=movers.all_to_all, writes=outputs,
        reads=inputs, nbytes=nbytes_of(inputs),
        buffers=(Buffers(inputs=tuple(inputs), outputs=tuple(outputs)),),
        splits=tuple(map(size_of, inputs)), expects=tuple(map(size_of, outputs)),
    )  # fmt: skip


def barrier(function: str) -> Asked:
    """Nothing moves."""
    return Asked(function=function, operation="barrier", move=movers.barrier)
