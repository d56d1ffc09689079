"""What each operation does to the ranks' tensors, once all of them have come.

A post's buffers are a tuple of `Buffers`, one for each tensor of a coalesced operation. Inputs and
outputs are per rank of the group where the operation has one for each, views of one tensor if need
be. Sums run in the order of the ranks, in the type of the tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch

from commsim.torch_backend import private
from commsim.torch_backend.records import Operation

Tensor: TypeAlias = torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Buffers:
    """The tensors that one rank gives and takes. op: torch's ReduceOp."""

    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    op: Any = None


def _moves(one: Callable[[list[Buffers], int], None]) -> Callable[[Operation], None]:
    """A mover of all tensors of an operation from that of one: (buffers by rank, root's place)."""

    def move(operation: Operation) -> None:
        if _without_data(operation):
            return
        posts = {post.call.rank: post for post in operation.posts}
        group, root = operation.group.ranks, operation.call.root
        # A rank that is not simulated has what the first one that is has, and takes nothing.
        absent = [replace(each, outputs=()) for each in operation.posts[0].buffers]
        places = [posts[rank].buffers if rank in posts else absent for rank in group]
        with torch.no_grad(), private.no_modes():
            for buffers in zip(*places, strict=True):
                one(list(buffers), 0 if root is None else group.index(root))

    return move


def _without_data(operation: Operation) -> bool:
    """Are there only shapes?"""
    buffers = operation.posts[0].buffers
    return any(isinstance(t, private.FakeTensor) for b in buffers for t in (*b.inputs, *b.outputs))


def put(output: Tensor, value: Tensor) -> None:
    """Write into a tensor without autograd taking notice, as a collective does."""
    if output is not value:
        output.data.copy_(value.view_as(output) if value.shape != output.shape else value)


PAIRWISE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.Tensor.add_,
    "avg": torch.Tensor.add_,
    "premul_sum": torch.Tensor.add_,
    "product": torch.Tensor.mul_,
    "min": lambda a, b: torch.minimum(a, b, out=a),
    "max": lambda a, b: torch.maximum(a, b, out=a),
    "band": torch.Tensor.bitwise_and_,
    "bor": torch.Tensor.bitwise_or_,
    "bxor": torch.Tensor.bitwise_xor_,
}


def op_name(op: Any) -> str:
    """`sum`, `avg`, `premul_sum` ... of a ReduceOp."""
    return str(getattr(op, "op", op)).rpartition(".")[2].lower()


def reduced(op: Any, tensors: Sequence[Tensor]) -> Tensor:
    """The reduction of all ranks' tensors, a new one."""
    name = op_name(op)
    factor = private.premul_factor(op) if name == "premul_sum" else None
    total = None
    for tensor, times in _runs(tensors):
        value = _times(name, tensor.detach() if factor is None else tensor.detach() * factor, times)
        total = value if total is None else PAIRWISE[name](total, value)
    assert total is not None
    if name == "avg":
        exact = total.is_floating_point() or total.is_complex()
        total = total / len(tensors) if exact else total.div(len(tensors), rounding_mode="trunc")
    return total


def _runs(tensors: Sequence[Tensor]) -> Iterator[tuple[Tensor, int]]:
    """Each tensor, and how often it follows upon itself: once, unless it stands for other ranks."""
    last, times = tensors[0], 0
    for tensor in tensors:
        if tensor is last:
            times += 1
        else:
            yield last, times
            last, times = tensor, 1
    yield last, times


def _times(name: str, value: Tensor, times: int) -> Tensor:
    """A new tensor: `value` reduced with itself."""
    if times > 1 and name in ("sum", "avg", "premul_sum") and value.dtype != torch.bool:
        return value * times
    if times > 1 and name == "product":
        return value**times
    if times > 1 and name == "bxor":
        return value * (times % 2)
    return value.clone()


@_moves
def all_reduce(ranks: list[Buffers], root: int) -> None:
    total = reduced(ranks[0].op, [each.inputs[0] for each in ranks])
    for each in ranks:
        put(each.inputs[0], total)


@_moves
def reduce(ranks: list[Buffers], root: int) -> None:
    put(ranks[root].inputs[0], reduced(ranks[0].op, [each.inputs[0] for each in ranks]))


@_moves
def broadcast(ranks: list[Buffers], root: int) -> None:
    value = ranks[root].inputs[0]
    for i, each in enumerate(ranks):
        if i != root:
            put(each.inputs[0], value)


@_moves
def all_gather(ranks: list[Buffers], root: int) -> None:
    # an input may lie in an output
    values = [value.clone() for value, n in _runs([r.inputs[0] for r in ranks]) for _ in range(n)]
    for each in ranks:
        for output, value in zip(each.outputs, values, strict=False):
            put(output, value)


@_moves
def gather(ranks: list[Buffers], root: int) -> None:
    for output, each in zip(ranks[root].outputs, ranks, strict=False):
        put(output, each.inputs[0])


@_moves
def scatter(ranks: list[Buffers], root: int) -> None:
    for value, each in zip(ranks[root].inputs, ranks, strict=False):
        for output in each.outputs:
            put(output, value)


@_moves
def reduce_scatter(ranks: list[Buffers], root: int) -> None:
    op = ranks[0].op
    totals = [
        (taking.outputs[0], reduced(op, [each.inputs[i] for each in ranks]))
        for i, taking in enumerate(ranks)
        if taking.outputs
    ]
    for output, total in totals:
        put(output, total)


@_moves
def all_to_all(ranks: list[Buffers], root: int) -> None:
    values = [
        [value.clone() for value in each.inputs] if each.outputs else each.inputs for each in ranks
    ]
    for i, each in enumerate(ranks):
        for output, sent in zip(each.outputs, values, strict=False):
            put(output, sent[i])


@_moves
def barrier(ranks: list[Buffers], root: int) -> None:
    """Nothing moves."""


def message(operation: Operation) -> None:
    """From the sender's tensors to the receiver's."""
    if _without_data(operation):
        return
    with torch.no_grad(), private.no_modes():
        sent, received = operation.of("send").buffers, operation.of("recv").buffers
        for source, target in zip(sent, received, strict=True):
            put(target.outputs[0], source.inputs[0])


def set_aside(operation: Operation) -> None:
    """A copy of what is sent, so that the sender may use its buffer again."""
    post = operation.posts[0]
    if _without_data(operation):
        return
    with torch.no_grad(), private.no_modes():
        post.buffers = tuple(Buffers(inputs=(each.inputs[0].clone(),)) for each in post.buffers)
