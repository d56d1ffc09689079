"""A backend whose ranks are threads: operations by their definition, without any library."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Queue
from typing import Any

import numpy as np

from commsim.measure.backend import Asked, Backend, Issue
from commsim.measure.devices.numpy_host import NumpyHost
from commsim.measure.follow import follow
from commsim.measure.layout import neighbours
from commsim.measure.plan import Plan

REDUCE = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


class Board:
    """Where threads leave what the others read."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.values: dict[int, Any] = {}
        self.barrier = threading.Barrier(n, timeout=20)

    def exchange(self, position: int, value: Any) -> list[Any]:
        self.values[position] = value
        self.barrier.wait()
        found = [self.values[i] for i in range(self.n)]
        self.barrier.wait()
        return found


class ThreadBackend(Backend):
    name = "threads"

    def __init__(
        self, rank: int, board: Board, boards: dict[Any, Any], spoil: Callable[[Any, Any], None]
    ) -> None:
        self.rank, self.n_ranks = rank, board.n
        self.device = NumpyHost()
        self.board, self.boards, self.spoil = board, boards, spoil
        self.made = 0

    def group(self, ranks: tuple[int, ...]) -> Any:
        self.made += 1
        self.everyone(None)
        key = (self.made, ranks)
        if self.rank == ranks[0]:
            self.boards[key] = Board(len(ranks))
        self.everyone(None)
        made: Board = self.boards[key]
        return made

    def bind(self, asked: Asked, group: Board) -> Issue:
        if asked.operation == "send_recv":  # its group is that of all ranks
            group = self.boards.setdefault(asked.ranks, Board(len(asked.ranks)))

        def issue(awaited: bool) -> Callable[[], None] | None:
            run(asked, group)
            if asked.receive is not None:
                self.spoil(asked, asked.receive)
            return None if awaited else lambda: None

        return issue

    def gather(self, value: object) -> list[Any]:
        found = self.everyone(value)
        return found if self.rank == 0 else []

    def everyone(self, value: object) -> list[Any]:
        return self.board.exchange(self.rank, value)

    def share(self, value: float) -> float:
        return float(self.everyone(value)[0])

    def tell(self, value: float, rank: int) -> None:
        self.boards.setdefault((self.rank, rank), Queue()).put(value)

    def hear(self, rank: int) -> float:
        return float(self.boards.setdefault((rank, self.rank), Queue()).get(timeout=20))

    def versions(self) -> dict[str, str]:
        return {"threads": "1"}

    def close(self) -> None:
        pass


def run(asked: Asked, group: Board) -> None:
    """The operation on this rank, from copies of what all send."""
    sent = group.exchange(asked.position, None if asked.send is None else asked.send.copy())
    n, me, out = len(asked.ranks), asked.position, asked.receive
    parts = None if sent[me] is None else np.split(sent[me], n) if len(sent[me]) % n == 0 else None
    match asked.operation:
        case "all_reduce" | "reduce":
            if asked.operation == "all_reduce" or me == asked.root:
                out[:] = REDUCE[asked.reduce_op].reduce(sent)
        case "reduce_scatter":
            total = REDUCE[asked.reduce_op].reduce(sent)
            out[:] = np.split(total, n)[me]
        case "broadcast":
            out[:] = sent[asked.root or 0]
        case "all_gather":
            out[:] = np.concatenate(sent)
        case "gather":
            if me == asked.root:
                out[:] = np.concatenate(sent)
        case "scatter":
            out[:] = np.split(sent[asked.root or 0], n)[me]
        case "all_to_all":
            assert parts is not None
            out[:] = np.concatenate([np.split(other, n)[me] for other in sent])
        case "send_recv":
            source, _ = neighbours(n, me, asked.root)
            if source is not None:
                out[:] = sent[source]
        case "barrier":
            pass


def carry_out(
    plan: Plan, spoil: Callable[[Any, Any], None] = lambda asked, receive: None
) -> list[dict[str, Any]]:
    """The header and the records of a plan whose ranks are threads."""
    board = Board(plan.n_ranks)
    boards: dict[Any, Any] = {}
    found: list[dict[str, Any]] = []
    failed: list[BaseException] = []

    def rank(number: int) -> None:
        try:
            backend = ThreadBackend(number, board, boards, spoil)
            follow(plan, backend, found.append, lambda index, records: found.extend(records))
        except BaseException as error:
            failed.append(error)
            board.barrier.abort()

    threads = [
        threading.Thread(target=rank, args=(i,), name=f"rank {i}") for i in range(plan.n_ranks)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    real = [error for error in failed if not isinstance(error, threading.BrokenBarrierError)]
    if failed:
        raise (real or failed)[0]
    return found
