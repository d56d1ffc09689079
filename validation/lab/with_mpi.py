"""The lab's operations through mpi4py on MPICH."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from mpi4py import MPI

Act = Callable[[], None]


class Transport:
    """One rank's communicator and its buffers."""

    def __init__(self, n: int, most: int) -> None:
        self.world = MPI.COMM_WORLD
        self.n, self.rank = n, self.world.Get_rank()
        self.source = np.ones(max(1, most // 4), dtype=np.float32)
        self.target = np.ones(max(1, most // 4), dtype=np.float32)
        self.clock = np.zeros(1)

    def meet(self) -> None:
        """Returns once every rank is here."""
        self.world.Barrier()

    def tell(self, value: float) -> float:
        """Rank 0's value, on every rank."""
        self.clock[0] = value
        self.world.Bcast(self.clock, 0)
        return float(self.clock[0])

    def prepare(self, op: str, nbytes: int) -> Act:
        """The operation on nccl-tests' size of `nbytes`, ready to be called."""
        world, whole, out = self.world, self.source[: nbytes // 4], self.target[: nbytes // 4]
        part = nbytes // 4 // self.n
        divided, own = self.target[: part * self.n], self.source[:part]
        following, previous = (self.rank + 1) % self.n, (self.rank - 1) % self.n
        across, first = self.n // 2, self.rank == 0

        def send_recv() -> None:
            if first:
                world.Send(whole, across)
            elif self.rank == across:
                world.Recv(out, 0)

        return {
            "all_reduce": lambda: world.Allreduce(whole, out),
            "reduce": lambda: world.Reduce(whole, out if first else None, root=0),
            "broadcast": lambda: world.Bcast(whole, 0),
            "all_gather": lambda: world.Allgather(own, divided),
            "reduce_scatter": lambda: world.Reduce_scatter_block(divided, own),
            "all_to_all": lambda: world.Alltoall(self.source[: part * self.n], divided),
            "gather": lambda: world.Gather(own, divided if first else None, root=0),
            "scatter": lambda: world.Scatter(divided if first else None, own, root=0),
            "barrier": lambda: world.Barrier(),
            "send_recv": send_recv,
            "ring_shift": lambda: world.Sendrecv(whole, following, 0, out, previous, 0),
        }[op]

    def close(self) -> None:
        self.meet()
