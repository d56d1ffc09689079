"""What each operation does to the ranks' tensors, once all of them have come.

A post's buffers are a tuple of `Buffers`, one for each tensor of a coalesced operation. Inputs and
outputs are per rank of the group where the operation has one for each, views of one tensor if need
be. Sums run in the order of the ranks, in the type of the tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from commsim.torch_backend import private
from commsim.torch_backend.records import Operation

Tensor = torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Buffers:
    """The tensors that one rank gives and takes. op: torch's ReduceOp."""

    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    op: Any = None


def _moves(one: Callable[[list[Buffers], int], None]) -> Callable[[Operation], None]:
    """A mover of all tensors of an operation from that of one: (buffers by rank, root's place)."""

    def move(operation: Operation) -> None:
        posts = operation.in_order
        root = operation.call.root
        place = 0
        if root is not None:
            place = next((i for i, p in enumerate(posts) if p.call.rank == root), 0)
        with torch.no_grad(), private.no_modes():
            for buffers in zip(*(post.buffers for post in posts), strict=True):
                one(list(buffers), place)

    return move


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
    first, *others = (t.detach() for t in tensors)
    total = first.clone()
    if name == "premul_sum":
        factor = private.premul_factor(op)
        total = total * factor
        others = [t * factor for t in others]
    for other in others:
        PAIRWISE[name](total, other)
    if name == "avg":
        exact = total.is_floating_point() or total.is_complex()
        total = total / len(tensors) if exact else total.div(len(tensors), rounding_mode="trunc")
    return total


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
    values = [each.inputs[0].clone() for each in ranks]  # an input may lie in an output
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
        put(each.outputs[0], value)


@_moves
def reduce_scatter(ranks: list[Buffers], root: int) -> None:
    op = ranks[0].op
    totals = [reduced(op, [each.inputs[i] for each in ranks]) for i in range(len(ranks))]
    for each, total in zip(ranks, totals, strict=True):
        put(each.outputs[0], total)


@_moves
def all_to_all(ranks: list[Buffers], root: int) -> None:
    values = [[value.clone() for value in each.inputs] for each in ranks]
    for i, each in enumerate(ranks):
        for output, sent in zip(each.outputs, values, strict=False):
            put(output, sent[i])


@_moves
def barrier(ranks: list[Buffers], root: int) -> None:
    """Nothing moves."""


def message(operation: Operation) -> None:
    """From the sender's tensors to the receiver's."""
    with torch.no_grad(), private.no_modes():
        sent, received = operation.of("send").buffers, operation.of("recv").buffers
        for source, target in zip(sent, received, strict=True):
            put(target.outputs[0], source.inputs[0])


def set_aside(operation: Operation) -> None:
    """A copy of what is sent, so that the sender may use its buffer again."""
    post = operation.posts[0]
    with torch.no_grad(), private.no_modes():
        post.buffers = tuple(Buffers(inputs=(each.inputs[0].clone(),)) for each in post.buffers)


def nothing(operation: Operation) -> None:
    """Of an operation on tensors without data."""
