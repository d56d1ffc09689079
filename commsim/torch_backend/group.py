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

from commsim.torch_backend import asked, movers, private
from commsim.torch_backend.asked import Asked
from commsim.torch_backend.movers import Buffers, Tensor
from commsim.torch_backend.records import Call, Group, Post
from commsim.torch_backend.tensors import (
    check,
    check_length,
    counts_of,
    dtype_of,
    extent,
    listed,
    nbytes_of,
    nested,
    pieces,
    reduce_op_of,
    root_of,
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
        self.device: Any = None  # what init_process_group was given

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
        return self._collective(asked.all_reduce(listed(tensors), reduce_op_of(opts)))

    allreduce_coalesced = allreduce

    def broadcast(self, tensors: Any, opts: Any = None, *more: Any) -> SimulatedWork:
        return self._collective(asked.broadcast(listed(tensors), root_of(opts)))

    def reduce(self, tensors: Any, opts: Any = None) -> SimulatedWork:
        return self._collective(asked.reduce(listed(tensors), reduce_op_of(opts), root_of(opts)))

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> SimulatedWork:
        lists = nested(outputs)
        for each in lists:
            check_length("all_gather", each, self.size())
        work = self._collective(
            asked.all_gather("all_gather", lists, listed(inputs), self.rank())
        )  # fmt: skip
        if "nccl" in private.backend_name(self):
            work.stack(lists)
        return work

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> SimulatedWork:
        # outputs[rank][tensor], unlike allgather's outputs[tensor][rank]
        by_tensor = list(zip(*outputs, strict=True))
        return self._collective(
            asked.all_gather("all_gather_coalesced", by_tensor, inputs, self.rank())
        )

    def all_gather_single(self, output: Any, input: Any, opts: Any = None) -> SimulatedWork:
        return self._collective(
            asked.all_gather_single("all_gather_into_tensor", [output], [input], self.size())
        )

    def all_gather_single_coalesced(
        self, outputs: Any, inputs: Any, opts: Any = None
    ) -> SimulatedWork:
        function = "all_gather_into_tensor_coalesced"
        return self._collective(asked.all_gather_single(function, outputs, inputs, self.size()))

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> SimulatedWork:
        outputs = nested(outputs)[0] if outputs else []
        if root_of(opts) == self.rank():
            check_length("gather", outputs, self.size())
        return self._collective(
            asked.gather(outputs, listed(inputs), root_of(opts), self.size())
        )  # fmt: skip

    def gather_single(self, output: Any, input: Any, opts: Any = None) -> SimulatedWork:
        n, root = self.size(), root_of(opts)
        outputs = pieces(output, n) if root == self.rank() else []
        return self._collective(asked.gather(outputs, [input], root, n, "gather_single"))

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> SimulatedWork:
        inputs = nested(inputs)[0] if inputs else []
        if root_of(opts) == self.rank():
            check_length("scatter", inputs, self.size())
        return self._collective(
            asked.scatter(listed(outputs), inputs, root_of(opts), self.size())
        )  # fmt: skip

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> SimulatedWork:
        lists = nested(inputs)
        for each in lists:
            check_length("reduce_scatter", each, self.size())
        return self._collective(asked.reduce_scatter(listed(outputs), lists, reduce_op_of(opts)))

    def reduce_scatter_single(self, output: Any, input: Any, opts: Any = None) -> SimulatedWork:
        return self._scatter_singles("reduce_scatter_tensor", [output], [input], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: Any, inputs: Any, opts: Any = None
    ) -> SimulatedWork:
        return self._scatter_singles("reduce_scatter_tensor_coalesced", outputs, inputs, opts)

    def _scatter_singles(
        self, function: str, outputs: Any, inputs: Any, opts: Any
    ) -> SimulatedWork:
        op = reduce_op_of(opts)
        return self._collective(
            asked.reduce_scatter_single(function, outputs, inputs, op, self.size())
        )

    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> SimulatedWork:
        for each in (list(outputs), list(inputs)):
            check_length("all_to_all", each, self.size())
        return self._collective(asked.all_to_all("all_to_all", list(outputs), list(inputs)))

    def all_to_all_single(
        self, output: Any, input: Any, output_splits: Any, input_splits: Any, opts: Any = None
    ) -> SimulatedWork:
        n = self.size()
        outputs, inputs = split_for(output, output_splits, n), split_for(input, input_splits, n)
        return self._collective(asked.all_to_all("all_to_all_single", outputs, inputs))

    alltoall_base = all_to_all_single

    def barrier(self, opts: Any = None, *more: Any) -> SimulatedWork:
        return self._collective(asked.barrier("barrier"))

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """A barrier; ranks that never come are named at once, not after the time-out."""
        self._collective(asked.barrier("monitored_barrier")).wait()

    def _collective(self, what: Asked) -> SimulatedWork:
        """Post it, and give a handle of it."""
        check(what.function, (*what.writes, *what.reads))
        ranks = self.simulated.ranks
        call = Call(
            rank=self._rank.number, function=what.function, operation=what.operation,
            group=self.simulated, nbytes=what.nbytes, dtype=dtype_of(what.reads or what.writes),
            counts=what.counts, root=None if what.root is None else ranks[what.root],
            reduce_op=None if what.reduce_op is None else movers.op_name(what.reduce_op),
            splits=what.splits, expects=what.expects, where=where(),
        )  # fmt: skip
        post = self._world.post_collective(call, what.buffers, what.move)
        self._keep_in_flight(post, what.writes, what.reads)
        return self._handle(post, list(what.writes))

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
