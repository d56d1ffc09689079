"""The process group that scripts talk to: every method torch calls, turned into calls and buffers.

torch calls a group written in Python from Python (c10d) and from C++ (the reducer of DDP, the
functional collectives of DTensor). Names in both spellings: torch 2.13 renamed
`_allgather_base` to `all_gather_single`, and others likewise.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from commsim.torch_backend import movers, private
from commsim.torch_backend.movers import Buffers, Tensor
from commsim.torch_backend.records import Call, Group, Mover, Post
from commsim.torch_backend.tensors import (
    check,
    counts_of,
    dtype_of,
    extent,
    listed,
    nbytes_of,
    nested,
    pieces,
    reduce_op_of,
    root_of,
    size_of,
    split_for,
)
from commsim.torch_backend.where import where
from commsim.torch_backend.work import SimulatedWork
from commsim.torch_backend.world import Rank

Lists = Sequence[Sequence[Tensor]]


class Backend:
    """What torch asks of the backend for a device."""

    supports_coalescing = supports_splitting = supports_time_estimate = False

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        return False

    def name(self) -> str:
        return private.NAME


class SimulatedGroup(private.ProcessGroup):
    """One rank's handle of one group."""

    def __init__(self, rank: Rank, group: Group) -> None:
        super().__init__(group.ranks.index(rank.number), len(group.ranks))
        self.simulated = group
        self._rank = rank
        self._world = rank.world
        self._name, self._description = group.name, group.description
        self._backend = Backend()
        self._coalesced: list[SimulatedWork] | None = None
        self.bound_device_id = None

    # What torch asks about a group.

    def getBackendName(self) -> str:
        return private.NAME

    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupDesc(self) -> str:
        return self._description

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    _set_group_name, _set_group_desc = setGroupName, setGroupDesc
    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]

    def _get_backend(self, device: Any) -> Backend:
        return self._backend

    def _get_backend_name(self) -> str:
        return private.NAME

    def name(self) -> str:
        return private.NAME

    def get_group_store(self) -> Any:
        return private.tables().pg_map[self][1]

    def set_timeout(self, timeout: Any) -> None:
        """Time-outs are not simulated: a deadlock is known without one."""

    def shutdown(self) -> None:
        """There is nothing to shut down."""

    def abort(self) -> None:
        """There is nothing to abort."""

    def _start_coalescing(self, device: Any) -> None:
        """Calls between here and `_end_coalescing` are not merged; each is an operation."""
        self._coalesced = []

    def _end_coalescing(self, device: Any) -> Any:
        works, self._coalesced = self._coalesced or [], None
        return Together(works) if works else None

    # Collectives.

    def allreduce(self, tensors: Any, opts: Any = None) -> SimulatedWork:
        tensors = listed(tensors)
        op = reduce_op_of(opts)
        buffers = tuple(Buffers(inputs=(t,), op=op) for t in tensors)
        return self._collective(
            "all_reduce", "all_reduce", buffers, movers.all_reduce, tensors,
            nbytes=nbytes_of(tensors), counts=counts_of(tensors), reduce_op=op,
        )  # fmt: skip

    allreduce_coalesced = allreduce

    def broadcast(self, tensors: Any, opts: Any = None, *more: Any) -> SimulatedWork:
        tensors = listed(tensors)
        return self._collective(
            "broadcast", "broadcast", tuple(Buffers(inputs=(t,)) for t in tensors),
            movers.broadcast, tensors, nbytes=nbytes_of(tensors), counts=counts_of(tensors),
            root=root_of(opts),
        )  # fmt: skip

    def reduce(self, tensors: Any, opts: Any = None) -> SimulatedWork:
        tensors = listed(tensors)
        op = reduce_op_of(opts)
        buffers = tuple(Buffers(inputs=(t,), op=op) for t in tensors)
        return self._collective(
            "reduce", "reduce", buffers, movers.reduce, tensors, nbytes=nbytes_of(tensors),
            counts=counts_of(tensors), reduce_op=op, root=root_of(opts),
        )  # fmt: skip

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> SimulatedWork:
        outputs, inputs = nested(outputs), listed(inputs)
        return self._all_gather("all_gather", outputs, inputs)

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> SimulatedWork:
        # outputs[rank][tensor], unlike allgather's outputs[tensor][rank]
        return self._all_gather("all_gather_coalesced", list(zip(*outputs, strict=True)), inputs)

    def all_gather_single(self, output: Any, input: Any, opts: Any = None) -> SimulatedWork:
        return self._gather_singles("all_gather_into_tensor", [output], [input])

    def all_gather_single_coalesced(
        self, outputs: Any, inputs: Any, opts: Any = None
    ) -> SimulatedWork:
        return self._gather_singles("all_gather_into_tensor_coalesced", outputs, inputs)

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _gather_singles(
        self, function: str, outputs: Sequence[Tensor], inputs: Sequence[Tensor]
    ) -> SimulatedWork:
        n = self.size()
        for output, value in zip(outputs, inputs, strict=True):
            if output.numel() != n * value.numel():
                raise ValueError(
                    f"output tensor size must be equal to world_size times input tensor size: "
                    f"{output.numel()} != {n} * {value.numel()}"
                )
        buffers = tuple(
            Buffers(inputs=(value,), outputs=tuple(pieces(output, n)))
            for value, output in zip(inputs, outputs, strict=True)
        )
        return self._collective(
            function, "all_gather", buffers, movers.all_gather, outputs, reads=inputs,
            nbytes=nbytes_of(outputs), counts=counts_of(inputs),
        )  # fmt: skip

    def _all_gather(self, function: str, outputs: Lists, inputs: Sequence[Tensor]) -> SimulatedWork:
        buffers = tuple(
            Buffers(inputs=(value,), outputs=tuple(out))
            for value, out in zip(inputs, outputs, strict=True)
        )
        sizes = [tuple(t.numel() for t in out) for out in outputs]
        even = all(len(set(each)) == 1 for each in sizes)
        counts = counts_of(inputs) if even else tuple(n for each in sizes for n in each)
        if not even:
            place = self.rank()
            for value, each in zip(inputs, sizes, strict=True):
                if each[place] != value.numel():
                    raise ValueError(
                        f"{function}: the output for this rank has {each[place]} elements, its "
                        f"input {value.numel()}"
                    )
        flat = [t for out in outputs for t in out]
        return self._collective(
            function, "all_gather", buffers, movers.all_gather,
            flat, reads=inputs, nbytes=nbytes_of(flat), counts=counts,
        )  # fmt: skip

    def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> SimulatedWork:
        inputs = listed(inputs)
        outputs = nested(outputs)[0] if outputs else []
        return self._collective(
            "gather", "gather", (Buffers(inputs=tuple(inputs), outputs=tuple(outputs)),),
            movers.gather, outputs, reads=inputs, nbytes=nbytes_of(inputs) * self.size(),
            counts=counts_of(inputs), root=root_of(opts),
        )  # fmt: skip

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> SimulatedWork:
        outputs = listed(outputs)
        inputs = nested(inputs)[0] if inputs else []
        return self._collective(
            "scatter", "scatter", (Buffers(inputs=tuple(inputs), outputs=tuple(outputs)),),
            movers.scatter, outputs, reads=inputs, nbytes=nbytes_of(outputs) * self.size(),
            counts=counts_of(outputs), root=root_of(opts),
        )  # fmt: skip

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> SimulatedWork:
        return self._reduce_scatter("reduce_scatter", listed(outputs), nested(inputs), opts)

    def reduce_scatter_single(self, output: Any, input: Any, opts: Any = None) -> SimulatedWork:
        return self._scatter_singles("reduce_scatter_tensor", [output], [input], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: Any, inputs: Any, opts: Any = None
    ) -> SimulatedWork:
        return self._scatter_singles("reduce_scatter_tensor_coalesced", outputs, inputs, opts)

    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _scatter_singles(
        self, function: str, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any
    ) -> SimulatedWork:
        n = self.size()
        for output, value in zip(outputs, inputs, strict=True):
            if value.numel() != n * output.numel():
                raise ValueError(
                    f"input tensor must be the same size as output size times world size: "
                    f"{value.numel()} != {n} * {output.numel()}"
                )
        op = reduce_op_of(opts)
        buffers = tuple(
            Buffers(inputs=tuple(pieces(value, n)), outputs=(output,), op=op)
            for output, value in zip(outputs, inputs, strict=True)
        )
        return self._collective(
            function, "reduce_scatter", buffers, movers.reduce_scatter, outputs, reads=inputs,
            nbytes=nbytes_of(inputs), counts=counts_of(outputs), reduce_op=op,
        )  # fmt: skip

    def _reduce_scatter(
        self, function: str, outputs: Sequence[Tensor], inputs: Lists, opts: Any
    ) -> SimulatedWork:
        op = reduce_op_of(opts)
        flat = [t for each in inputs for t in each]
        buffers = tuple(
            Buffers(inputs=tuple(each), outputs=(output,), op=op)
            for output, each in zip(outputs, inputs, strict=True)
        )
        sizes = [tuple(t.numel() for t in each) for each in inputs]
        even = all(len(set(each)) == 1 for each in sizes)
        return self._collective(
            function, "reduce_scatter", buffers, movers.reduce_scatter, outputs, reads=flat,
            nbytes=nbytes_of(flat), reduce_op=op,
            counts=counts_of(outputs) if even else tuple(n for each in sizes for n in each),
        )  # fmt: skip

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> SimulatedWork:
        return self._all_to_all("all_to_all", list(outputs), list(inputs))

    def all_to_all_single(
        self, output: Any, input: Any, output_splits: Any, input_splits: Any, opts: Any = None
    ) -> SimulatedWork:
        n = self.size()
        return self._all_to_all(
            "all_to_all_single",
            split_for(output, output_splits, n),
            split_for(input, input_splits, n),
        )

    alltoall_base = all_to_all_single

    def _all_to_all(
        self, function: str, outputs: Sequence[Tensor], inputs: Sequence[Tensor]
    ) -> SimulatedWork:
        return self._collective(
            function, "all_to_all", (Buffers(inputs=tuple(inputs), outputs=tuple(outputs)),),
            movers.all_to_all, outputs, reads=inputs, nbytes=nbytes_of(inputs), counts=(),
            splits=tuple(map(size_of, inputs)), expects=tuple(map(size_of, outputs)),
        )  # fmt: skip

    def barrier(self, opts: Any = None, *more: Any) -> SimulatedWork:
        return self._collective("barrier", "barrier", (), movers.barrier, (), nbytes=0, counts=())

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """A barrier; ranks that never come are named at once, not after the time-out."""
        self._collective(
            "monitored_barrier", "barrier", (), movers.barrier, (), nbytes=0, counts=()
        ).wait()

    # Messages.

    def send(self, tensors: Any, destination: int, tag: int) -> SimulatedWork:
        return self._message("send", listed(tensors), self._peer("send", destination), tag)

    def recv(self, tensors: Any, source: int, tag: int) -> SimulatedWork:
        return self._message("recv", listed(tensors), self._peer("recv", source), tag)

    def recv_anysource(self, tensors: Any, tag: int) -> SimulatedWork:
        return self._message("recv", listed(tensors), None, tag)

    def _peer(self, function: str, place: int) -> int:
        """The rank at a place of the group."""
        if not 0 <= place < self.size():
            raise ValueError(f"{function}: no rank {place} in a group of {self.size()}")
        return self.simulated.ranks[place]

    def _message(
        self, operation: str, tensors: Sequence[Tensor], peer: int | None, tag: int
    ) -> SimulatedWork:
        sends = operation == "send"
        check(operation, tensors)
        call = Call(
            rank=self._rank.number, function=operation, operation=operation, group=self.simulated,
            nbytes=nbytes_of(tensors), dtype=dtype_of(tensors), counts=counts_of(tensors),
            peer=peer, tag=tag, where=where(),
        )  # fmt: skip
        buffers = tuple(Buffers(inputs=(t,)) if sends else Buffers(outputs=(t,)) for t in tensors)
        post = self._world.post_message(call, buffers, movers.message, movers.set_aside)
        self._keep_in_flight(post, () if sends else tensors, tensors if sends else ())
        return self._handle(post, tensors)

    def _collective(
        self,
        function: str,
        operation: str,
        buffers: tuple[Buffers, ...],
        move: Mover,
        writes: Sequence[Tensor],
        *,
        nbytes: int,
        counts: tuple[int, ...],
        reads: Sequence[Tensor] = (),
        root: int | None = None,
        reduce_op: Any = None,
        splits: tuple[int, ...] | None = None,
        expects: tuple[int, ...] | None = None,
    ) -> SimulatedWork:
        check(function, (*writes, *reads))
        call = Call(
            rank=self._rank.number, function=function, operation=operation, group=self.simulated,
            nbytes=nbytes, dtype=dtype_of(reads or writes), counts=counts,
            root=None if root is None else self.simulated.ranks[root],
            reduce_op=None if reduce_op is None else movers.op_name(reduce_op),
            splits=splits, expects=expects, where=where(),
        )  # fmt: skip
        post = self._world.post_collective(call, buffers, move)
        self._keep_in_flight(post, writes, reads)
        return self._handle(post, list(writes))

    def _keep_in_flight(
        self, post: Post, writes: Sequence[Tensor], reads: Sequence[Tensor]
    ) -> None:
        """Note which memory is the operation's until the rank has waited."""
        if post.buffered is not None:
            return
        for tensors, written in ((writes, True), (reads, False)):
            for tensor in tensors:
                low, high = extent(tensor)
                if high > low:
                    self._rank.in_flight.append((low, high, written, post, tensor))

    def _handle(self, post: Post, result: Sequence[Tensor]) -> SimulatedWork:
        work = SimulatedWork(self._world, post, list(result))
        self._rank.handles.keep(work)
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work


class Together(private.Work):
    """The handle of several operations."""

    def __init__(self, works: Sequence[SimulatedWork]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: Any = None) -> bool:
        for work in self._works:
            work.wait()
        return True

    def is_completed(self) -> bool:
        return not [work for work in self._works if not work.is_completed()]

    def result(self) -> list[Tensor]:
        return [tensor for work in self._works for tensor in work.result()]
