"""The lab's operations through torch.distributed on Gloo."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

Act = Callable[[], None]


class Transport:
    """One rank's process group and its buffers."""

    def __init__(self, n: int, most: int) -> None:
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")  # torch 2.13 renamed the *_into_tensor calls
        dist.init_process_group("gloo", timeout=timedelta(seconds=120))
        self.n, self.rank = n, int(os.environ["RANK"])
        self.source = torch.ones(max(1, most // 4))
        self.target = torch.ones(max(1, most // 4))
        self.clock = torch.zeros(1, dtype=torch.float64)

    def meet(self) -> None:
        """Returns once every rank is here."""
        dist.barrier()

    def tell(self, value: float) -> float:
        """Rank 0's value, on every rank."""
        self.clock[0] = value
        dist.broadcast(self.clock, 0)
        return float(self.clock[0])

    def prepare(self, op: str, nbytes: int) -> Act:
        """The operation on nccl-tests' size of `nbytes`, ready to be called."""
        whole = self.source[: nbytes // 4]
        part = nbytes // 4 // self.n
        divided, own = self.target[: part * self.n], self.source[:part]
        parts = list(divided.chunk(self.n)) if part else []
        following, previous = (self.rank + 1) % self.n, (self.rank - 1) % self.n
        across = self.n // 2

        def send_recv() -> None:
            if self.rank == 0:
                dist.send(whole, across)
            elif self.rank == across:
                dist.recv(whole, 0)

        def ring_shift() -> None:
            out = dist.isend(whole, following)
            back = dist.irecv(self.target[: nbytes // 4], previous)
            for work in (out, back):
                if work is not None:
                    work.wait()

        return {
            "all_reduce": lambda: dist.all_reduce(whole),
            "reduce": lambda: dist.reduce(whole, 0),
            "broadcast": lambda: dist.broadcast(whole, 0),
            "all_gather": lambda: dist.all_gather_into_tensor(divided, own),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(own, divided),
            "all_to_all": lambda: dist.all_to_all_single(divided, self.source[: part * self.n]),
            "gather": lambda: dist.gather(own, parts if self.rank == 0 else None, 0),
            "scatter": lambda: dist.scatter(own, parts if self.rank == 0 else None, 0),
            "barrier": lambda: dist.barrier(),
            "send_recv": send_recv,
            "ring_shift": ring_shift,
        }[op]

    def close(self) -> None:
        self.meet()
        dist.destroy_process_group()
