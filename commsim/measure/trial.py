"""Collectives made ready on this rank, run once to see whether they are right, and timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from commsim.collectives.collective import Collective, bus_factor
from commsim.measure.backend import Asked, Issue
from commsim.measure.buffers import Slot, slots
from commsim.measure.layout import Layout, layout
from commsim.measure.pattern import Pattern
from commsim.measure.session import Record, Run, Session, Work
from commsim.report.nccl_tests import whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """One collective on one of its ranks: its calls, each with other buffers."""

    collective: Collective
    position: int
    layout: Layout
    slots: list[Slot]
    calls: list[Issue]


def ranks_of(collective: Collective, n_ranks: int) -> tuple[int, ...]:
    """Its group; all ranks where it names none."""
    return tuple(range(n_ranks)) if collective.ranks is None else collective.ranks


def elements(collective: Collective, n: int) -> int:
    """Elements of nccl-tests' size: whole ones, the same number on each rank."""
    if collective.operation == "barrier":
        return 0
    return (
        whole(collective.operation, collective.nbytes, collective.itemsize, n)
        // collective.itemsize
    )


def prepare(
    session: Session, collective: Collective, in_place: bool, copy: int = 0
) -> Ready | None:
    """The collective made ready on this rank; None where it is not of its group."""
    backend, settings = session.backend, session.settings
    ranks = ranks_of(collective, backend.n_ranks)
    # messages between two ranks need no communicator of their own
    everyone = tuple(range(backend.n_ranks))
    group = session.group(everyone if collective.operation == "send_recv" else ranks, copy)
    if backend.rank not in ranks:
        return None
    position = ranks.index(backend.rank)
    root = None if collective.root is None else ranks.index(collective.root)
    if root is None and collective.operation in ("broadcast", "reduce", "gather", "scatter"):
        root = 0
    plan = layout(
        collective.operation, len(ranks), position, root, elements(collective, len(ranks))
    )
    found = slots(
        session.device, plan, collective.dtype, collective.itemsize, in_place=in_place,
        rotate=session.rotate, most=max(1, settings.iterations), sharers=session.sharers,
    )  # fmt: skip
    calls = [
        backend.bind(
            Asked(
                operation=collective.operation, reduce_op=collective.reduce_op,
                dtype=collective.dtype, ranks=ranks, position=position, root=root, send=send,
                receive=receive, in_place=in_place,
            ),
            group,
        )
        for send, receive in found
    ]  # fmt: skip
    if settings.cudagraph:
        calls = [_captured(session, call) for call in calls]
    return Ready(
        collective=collective, position=position, layout=plan, slots=found, calls=calls
    )  # fmt: skip


def _captured(session: Session, call: Issue) -> Issue:
    """The same as a CUDA graph, in the stream when it returns."""

    def once() -> None:
        call(True)

    replay = session.device.graph(once)

    def issue(awaited: bool) -> Callable[[], None] | None:
        replay()
        return None if awaited else lambda: None

    return issue


def work_of(readies: Sequence[Ready], at_once: bool = False) -> Work | None:
    """Run i of all of them; None where there are none. at_once: several on some rank, so every
    rank starts all of its own before it waits for any (MPI wants all ranks to call alike)."""
    if not readies:
        return None
    if not at_once:
        calls = readies[0].calls

        def alone(i: int) -> None:
            calls[i % len(calls)](True)

        return alone

    def together(i: int) -> None:
        waits = [ready.calls[i % len(ready.calls)](False) for ready in readies]
        for wait in waits:
            if wait is not None:
                wait()

    return together


def trial(
    session: Session, collectives: Sequence[Collective], in_place: bool
) -> list[Record] | None:
    """Runs these collectives at the same time; on rank 0 a record of each, else None."""
    mine = [
        ready for i, collective in enumerate(collectives)
        if (ready := prepare(session, collective, in_place, _copy(collectives, i))) is not None
    ]  # fmt: skip
    work, settings = work_of(mine, len(collectives) > 1), session.settings
    wrong = check(session, mine, work) if settings.check else []
    session.run(work, settings.warmup)
    run = session.run(work, settings.iterations)
    found = session.backend.gather((run, wrong))
    return [_record(session, c, in_place, found) for c in collectives] if found else None


def _copy(collectives: Sequence[Collective], index: int) -> int:
    """How many before this one have the same group: each has a communicator of its own."""
    return sum(c.ranks == collectives[index].ranks for c in collectives[:index])


def check(session: Session, readies: Sequence[Ready], work: Work | None) -> list[int]:
    """Elements that come out wrong on this rank when `work` runs, for each of the collectives."""
    patterns = []
    for ready in readies:
        asked, (send, receive) = ready.collective, ready.slots[0]
        n = len(ranks_of(asked, session.backend.n_ranks))
        pattern = Pattern(session.device, asked.operation, n, asked.dtype, asked.reduce_op)
        patterns.append(pattern)
        if receive is not None:
            pattern.spoil(receive, ready.layout.pieces)
        if send is not None:
            pattern.fill(send, ready.position)
    session.device.finish()
    session.line.wait()
    if work is not None:
        work(0)
    session.device.finish()
    return [
        pattern.wrong(ready.slots[0][1], ready.layout.pieces)
        for pattern, ready in zip(patterns, readies, strict=True)
    ]


def _record(
    session: Session, asked: Collective, in_place: bool, found: list[tuple[Run | None, list[int]]]
) -> Record:
    n_ranks = session.backend.n_ranks
    ranks = ranks_of(asked, n_ranks)
    count = elements(asked, len(ranks))
    nbytes = count * asked.itemsize
    summary = session.summary([run for rank in ranks if (run := found[rank][0]) is not None])
    duration = summary["duration_s"]
    return {
        "kind": "collective",
        "operation": asked.operation,
        "size_bytes": nbytes,
        "dtype": asked.dtype,
        "reduce_op": asked.reduce_op,
        "root": asked.root,
        "ranks": list(ranks),
        "n_ranks": len(ranks),
        "nodes": session.nodes(ranks),
        "in_place": in_place,
        "wrong": sum(sum(found[rank][1]) for rank in ranks) if session.settings.check else None,
        "timing": "loop" if session.loops else "isolated",
        "algorithm_bandwidth_bytes_per_s": nbytes / duration,
        "bus_bandwidth_bytes_per_s": nbytes / duration * bus_factor(asked.operation, len(ranks)),
    } | summary
