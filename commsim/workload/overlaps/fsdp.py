"""Fully sharded data parallel: a module's parameters are gathered just before they are needed.

Per micro-batch an all_gather of each module before its forward and, unless it was kept, before its
backward, and a reduce_scatter of its gradients. All are carried by one communicator, in order of
issue. With HSDP the shards' gradients are then reduced across the groups, beside all else.
Sources: Zhao et al., "PyTorch FSDP", VLDB 2023, arXiv:2304.11277; torch/distributed/fsdp
(_runtime_utils.py: FSDP1; _fully_shard/: FSDP2).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar

from commsim.collectives.collective import DTYPES
from commsim.errors import ScheduleError
from commsim.units import Bytes
from commsim.workload.overlap import Cost, Line, Overlap, Piece, Step
from commsim.workload.streams import Task

BEHIND = 2  # modules whose gathered parameters FSDP lets exist at once (limit_all_gathers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fsdp(Overlap):
    """FSDP's arguments; the defaults are FSDP2's.

    reshard_after_forward: gathered parameters are freed after forward, but those of the last
    module, whose backward comes next; False: SHARD_GRAD_OP, ZeRO-2. backward_prefetch: when the
    next module's all_gather is issued: "pre", before this one's backward; "post", after it and
    before its reduce_scatter (the host runs ahead, so it can begin as early); None, at its turn.
    limit_all_gathers: no more than two modules are gathered ahead. no_sync: gradients are reduced
    in the last micro-batch only. replicas: groups of `shards` ranks that each hold the whole model
    (HSDP). parameter_dtype, reduce_dtype: as gathered, as reduced (None: the gradients').
    """

    names: ClassVar[tuple[str, ...]] = ("fsdp", "fsdp2")
    reshard_after_forward: bool = True
    backward_prefetch: str | None = "pre"
    limit_all_gathers: bool = True
    no_sync: bool = False
    replicas: int = 1
    shards: int = 1
    parameter_dtype: str | None = None
    reduce_dtype: str | None = None

    def __post_init__(self) -> None:
        if self.backward_prefetch not in ("pre", "post", None):
            raise ScheduleError(
                f'fsdp: backward_prefetch: expected "pre", "post" or None, got '
                f"{self.backward_prefetch!r}"
            )

    def tasks(self, step: Step, cost: Cost) -> list[Task]:
        """All micro-batches and the update."""
        run = _Run(self, step, Line(cost))
        for i in range(step.micro_batches):
            run.micro_batch(reduces=not self.no_sync or i == step.micro_batches - 1)
        run.line.optimizer(step, run.reduced)
        return run.line.tasks


class _Run:
    """A step as it is written down."""

    def __init__(self, how: Fsdp, step: Step, line: Line) -> None:
        self.how, self.step, self.line = how, step, line
        self.gathered: dict[str, int] = {}  # by piece, the all_gather whose result is still there
        self.freed: deque[int] = deque()  # works after which gathered parameters were freed
        self.reduced: list[int] = []

    def micro_batch(self, reduces: bool) -> None:
        pieces = self.step.pieces
        for i, piece in enumerate(pieces):
            self.gather(piece)
            end = self.line.compute("forward", piece.name, piece.forward, self.there(piece))
            if self.how.reshard_after_forward and i < len(pieces) - 1:
                self.free(piece, end)
        for i in reversed(range(len(pieces))):
            piece, following = pieces[i], pieces[i - 1] if i else None
            self.gather(piece)
            if self.how.backward_prefetch == "pre" and following:
                self.gather(following)
            end = self.line.compute("backward", piece.name, piece.backward, self.there(piece))
            self.free(piece, end)
            if self.how.backward_prefetch == "post" and following:
                self.gather(following)
            if reduces and piece.parameters:
                self.reduce(piece, end)

    def gather(self, piece: Piece) -> None:
        """The piece's all_gather, unless its parameters are there."""
        if not piece.parameters or piece.name in self.gathered:
            return
        full = self.how.limit_all_gathers and len(self.freed) >= BEHIND
        self.gathered[piece.name] = self.line.collective(
            "all_gather",
            piece.name,
            _bytes(piece, self.how.parameter_dtype),
            (self.freed.popleft(),) if full else (),
        )

    def there(self, piece: Piece) -> tuple[int, ...]:
        """What the piece's compute waits for."""
        return (self.gathered[piece.name],) if piece.name in self.gathered else ()

    def free(self, piece: Piece, end: int) -> None:
        """The piece's gathered parameters go with the work `end`."""
        if self.gathered.pop(piece.name, None) is not None:
            self.freed.append(end)

    def reduce(self, piece: Piece, end: int) -> None:
        """The gradients' reduce_scatter, and the all_reduce of its shards across the replicas."""
        nbytes = _bytes(piece, self.how.reduce_dtype)
        last = self.line.collective(
            "reduce_scatter", piece.name, nbytes, (end,), covers=piece.parameters
        )
        if self.how.replicas > 1:
            last = self.line.collective(
                "all_reduce", piece.name, -(-nbytes // self.how.shards), (last,), stream="replicas"
            )
        self.reduced.append(last)


def _bytes(piece: Piece, dtype: str | None) -> Bytes:
    return sum(p.numel * DTYPES[dtype] if dtype else p.nbytes for p in piece.parameters)
