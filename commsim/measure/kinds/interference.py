"""A matrix product and a collective, each alone, then both: how much each slows the other.

Together both go on all the while; what counts are the runs of one that lie within the time of the
other. On a GPU they are on streams of their own, on a CPU in threads of their own.
"""

from __future__ import annotations

import math

import numpy as np

from commsim.measure import statistics
from commsim.measure.plan import Step
from commsim.measure.session import Record, Session
from commsim.measure.trial import check, prepare, ranks_of, work_of

SPAN = 5  # products that the collectives together must last at least


def measure(step: Step, session: Session) -> list[Record]:
    """One record: seconds of each alone and together, and by what factor it is slower."""
    assert step.collective is not None
    assert step.gemm is not None
    m, n, k = step.gemm
    multiply = session.device.matmul(m, n, k, step.gemm_dtype)
    ready = prepare(session, step.collective, step.forms[0])
    mine = [] if ready is None else [ready]
    work, settings = work_of(mine), session.settings
    wrong = check(session, mine, work) if settings.check else []

    def product(i: int) -> None:
        multiply()

    for warm in (work, product):
        session.run(warm, settings.warmup, loops=True)
    alone = session.run(work, settings.iterations, loops=True)
    products = session.run(product, settings.iterations, loops=True)
    assert products is not None
    one = float(np.median(products.durations))
    other = float(np.median(alone.durations)) if alone is not None else one
    # every rank runs the collective as often as rank 0 finds needed
    least = math.ceil(SPAN * one / other)
    times = int(session.backend.share(max(settings.iterations, least)))
    session.line.wait()
    beside: list[float] = []
    theirs: list[float] = []
    if work is not None:
        spans, others = session.device.beside(work, times, multiply, other / one)
        beside, theirs = statistics.overlapped(spans, others), statistics.overlapped(others, spans)
    session.device.finish()
    found = session.backend.gather((alone, beside, products.durations, theirs, wrong))
    if not found:
        return []
    ranks = ranks_of(step.collective, session.backend.n_ranks)
    runs = [found[rank] for rank in ranks]
    collective = session.summary([run[0] for run in runs])
    return [
        step.product | {
            "operation": step.collective.operation,
            "size_bytes": step.collective.nbytes,
            "collective_dtype": step.collective.dtype,
            "ranks": list(ranks),
            "n_ranks": len(ranks),
            "in_place": step.forms[0],
            "wrong": sum(sum(run[4]) for run in runs) if settings.check else None,
            "collective": _both(collective["samples_s"], [t for run in runs for t in run[1]]),
            "gemm": _both([t for run in runs for t in run[2]], [t for run in runs for t in run[3]]),
        }
    ]  # fmt: skip


def _both(alone: list[float], together: list[float]) -> Record:
    """The two summaries; no slowdown where nothing ran entirely within the other's time."""
    first = statistics.summary(alone)
    if not together:
        return {"alone": first, "together": None, "slowdown": None}
    second = statistics.summary(together)
    return {
        "alone": first, "together": second,
        "slowdown": second["duration_s"] / first["duration_s"],
    }  # fmt: skip
