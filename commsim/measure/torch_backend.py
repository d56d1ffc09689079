"""A rank of torch.distributed, for NCCL and Gloo alike.

What ranks say to one another about the measurement goes over a Gloo group of its own, so that
nothing of it is in the measured library's way.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from commsim.errors import MeasureError
from commsim.measure.backend import Asked, Backend, Issue
from commsim.measure.device import Device
from commsim.measure.layout import neighbours
from commsim.measure.rendezvous import Place
from commsim.units import Seconds

REDUCE = {"sum": "SUM", "prod": "PRODUCT", "min": "MIN", "max": "MAX", "avg": "AVG"}
# names since torch 2.13, and before
ALL_GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
REDUCE_SCATTER = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class TorchBackend(Backend):
    """moves: the dtypes that the library knows; others travel as bytes. gpu: the rank's own."""

    def __init__(
        self,
        name: str,
        place: Place,
        timeout: Seconds,
        device: Device,
        moves: frozenset[str],
        versions: dict[str, str],
        gpu: int | None = None,
    ) -> None:
        host, port = place.address
        if not host:
            raise MeasureError(
                f"MASTER_ADDR: expected the host of rank 0 (and MASTER_PORT), as {place.launcher} "
                "does not say it; set both"
            )
        self.name = name
        self.rank, self.n_ranks = place.rank, place.n_ranks
        self.device = device
        self.timeout = timedelta(seconds=timeout)
        self._moves = moves
        self._versions = versions
        dist.init_process_group(
            name, init_method=f"tcp://{host}:{port}", rank=self.rank, world_size=self.n_ranks,
            timeout=self.timeout, device_id=None if gpu is None else torch.device("cuda", gpu),
        )  # fmt: skip
        self._control = dist.new_group(backend="gloo", timeout=self.timeout)
        dist.barrier()  # the first messages of a pair need all ranks' connections
        self._number = torch.zeros(1, dtype=torch.float64)

    def group(self, ranks: tuple[int, ...]) -> Any:
        # torch sorts a group's ranks unless it is told not to, which not every release takes
        order: dict[str, Any] = {} if list(ranks) == sorted(ranks) else {"sort_ranks": False}
        made = dist.new_group(list(ranks), timeout=self.timeout, **order)
        return made if self.rank in ranks else None

    def bind(self, asked: Asked, group: Any) -> Issue:
        send, receive = asked.send, asked.receive
        if asked.dtype not in self._moves and asked.operation != "barrier":
            send, receive = (b if b is None else b.view(torch.uint8) for b in (send, receive))
        if asked.operation == "send_recv":
            return _send_recv(asked, send, receive, group)
        call = _call(asked, send, receive, group)

        def issue(awaited: bool) -> Callable[[], None] | None:
            work = call(not awaited)
            return None if awaited else work.wait

        return issue

    def gather(self, value: object) -> list[Any]:
        found: list[Any] | None = [None] * self.n_ranks if self.rank == 0 else None
        dist.gather_object(value, found, dst=0, group=self._control)
        return found or []

    def everyone(self, value: object) -> list[Any]:
        found: list[Any] = [None] * self.n_ranks
        dist.all_gather_object(found, value, group=self._control)
        return found

    def share(self, value: Seconds) -> Seconds:
        self._number[0] = value
        dist.broadcast(self._number, 0, group=self._control)
        return float(self._number[0])

    def tell(self, value: Seconds, rank: int) -> None:
        dist.send(torch.tensor([value], dtype=torch.float64), rank, group=self._control)

    def hear(self, rank: int) -> Seconds:
        number = torch.zeros(1, dtype=torch.float64)
        dist.recv(number, rank, group=self._control)
        return float(number[0])

    def versions(self) -> dict[str, str]:
        return dict(self._versions)

    def close(self) -> None:
        dist.destroy_process_group()


def _call(asked: Asked, send: Any, receive: Any, group: Any) -> Callable[[bool], Any]:
    """The call of torch.distributed; its argument is async_op."""
    how = getattr(dist.ReduceOp, REDUCE[asked.reduce_op])
    n = len(asked.ranks)
    root = asked.ranks[asked.root or 0]
    copies = not asked.in_place
    match asked.operation:
        case "all_reduce":
            return _copied(copies, send, receive, lambda later: dist.all_reduce(
                receive, how, group, later))  # fmt: skip
        case "reduce":
            return _copied(copies, send, receive, lambda later: dist.reduce(
                receive, root, how, group, later))  # fmt: skip
        case "broadcast":
            return _copied(copies and asked.position == asked.root, send, receive,
                           lambda later: dist.broadcast(receive, root, group, later))  # fmt: skip
        case "all_gather":
            return lambda later: ALL_GATHER(receive, send, group, later)
        case "reduce_scatter":
            return lambda later: REDUCE_SCATTER(receive, send, how, group, later)
        case "all_to_all":
            return lambda later: dist.all_to_all_single(
                receive, send, group=group, async_op=later)  # fmt: skip
        case "gather":
            into = None if receive is None else list(receive.chunk(n))
            return lambda later: dist.gather(send, into, root, group, later)
        case "scatter":
            parts = None if send is None else list(send.chunk(n))
            return lambda later: dist.scatter(receive, parts, root, group, later)
        case "barrier":
            return lambda later: dist.barrier(group, later)
    raise AssertionError(asked.operation)


def _copied(
    copies: bool, send: Any, receive: Any, call: Callable[[bool], Any]
) -> Callable[[bool], Any]:
    """Out of place where torch has no such form: a copy first, as its functional collectives do."""
    if not copies:
        return call

    def copy_first(later: bool) -> Any:
        receive.copy_(send)
        return call(later)

    return copy_first


def _send_recv(asked: Asked, send: Any, receive: Any, group: Any) -> Issue:
    source, target = neighbours(len(asked.ranks), asked.position, asked.root)
    ops = [] if target is None else [dist.P2POp(dist.isend, send, asked.ranks[target], group)]
    if source is not None:
        ops.append(dist.P2POp(dist.irecv, receive, asked.ranks[source], group))

    def issue(awaited: bool) -> Callable[[], None] | None:
        works = dist.batch_isend_irecv(ops)

        def wait() -> None:
            for work in works:
                work.wait()

        if not awaited:
            return wait
        wait()
        return None

    return issue
