"""What is asked about the tensors of a call: their sizes, their parts, and whether they will do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from commsim.torch_backend import private
from commsim.torch_backend.errors import UnsupportedCallError
from commsim.torch_backend.movers import Tensor


def extent(tensor: Tensor) -> tuple[int, int]:
    """The addresses of a tensor's memory, from the first byte to after the last."""
    if (
        tensor.layout != torch.strided
        or tensor.numel() == 0
        or isinstance(tensor, private.FakeTensor)
    ):
        return 0, 0
    low = tensor.data_ptr()
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return low, low + (reach + 1) * tensor.element_size()


def listed(tensors: Any) -> list[Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def nested(tensors: Any) -> list[list[Tensor]]:
    """Lists of lists, from one list too."""
    lists = list(tensors)
    return (
        [lists] if lists and isinstance(lists[0], torch.Tensor) else [list(each) for each in lists]
    )


def size_of(tensor: Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())


def nbytes_of(tensors: Sequence[Tensor]) -> int:
    return sum(map(size_of, tensors))


def counts_of(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple(t.numel() for t in tensors)


def dtype_of(tensors: Sequence[Tensor]) -> str:
    return str(tensors[0].dtype).removeprefix("torch.") if tensors else "uint8"


def pieces(tensor: Tensor, n: int) -> list[Tensor]:
    """n equal parts of a tensor's memory, as views."""
    if isinstance(tensor, private.FakeTensor):
        return []
    with torch.no_grad(), private.no_modes():
        return list(tensor.detach().view(-1).view(n, -1).unbind(0))


def check_length(function: str, tensors: Sequence[Any], n: int) -> None:
    """A list has a tensor for each rank of the group. Raises ValueError."""
    if len(tensors) != n:
        raise ValueError(
            f"{function}: a list of {len(tensors)} tensors for a group of {n} ranks: give {n}"
        )


def split_for(tensor: Tensor, sizes: Sequence[int] | None, n: int) -> list[Tensor]:
    """The parts of an all_to_all_single, along the first dimension."""
    with torch.no_grad(), private.no_modes():
        if sizes:
            if sum(sizes) != tensor.shape[0] or len(sizes) != n:
                raise RuntimeError(
                    f"Split sizes doesn't match total dim 0 size: {list(sizes)} for {n} ranks and "
                    f"{tensor.shape[0]}"
                )
            return list(torch.split(tensor.detach(), list(sizes)))
        if tensor.shape[0] % n:
            raise RuntimeError(
                f"Tensor's dim 0 does not divide equally across group size: {tensor.shape[0]} "
                f"and {n}"
            )
        return list(tensor.detach().view(n, -1).unbind(0))


def reduce_op_of(opts: Any) -> Any:
    op = getattr(opts, "reduceOp", opts)
    return dist.ReduceOp.SUM if op is None else op


def root_of(opts: Any) -> int:
    root = getattr(opts, "rootRank", opts)
    return 0 if root is None else int(root)


def check(function: str, tensors: Sequence[Tensor]) -> None:
    """What no backend takes."""
    for tensor in tensors:
        if tensor.layout != torch.strided:
            raise UnsupportedCallError(
                f"{function}: sparse tensors are not simulated; make it dense before it is sent"
            )
        if not tensor.is_contiguous() and not (
            tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
        ):
            raise ValueError(f"{function}: Tensors must be contiguous")
