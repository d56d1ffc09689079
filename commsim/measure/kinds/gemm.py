"""A matrix product on each rank's device, by itself."""

from __future__ import annotations

import numpy as np

from commsim.measure import statistics
from commsim.measure.plan import Step
from commsim.measure.session import Record, Session


def measure(step: Step, session: Session) -> list[Record]:
    """How long m x k by k x n takes, s, and FLOP/s (2mnk by that); of several ranks the slowest.
    host_s: what a call keeps the host busy; on a GPU the launch."""
    assert step.gemm is not None
    m, n, k = step.gemm
    multiply = session.device.matmul(m, n, k, step.gemm_dtype)

    def work(i: int) -> None:
        multiply()

    session.run(work, session.settings.warmup, loops=True)
    runs = session.backend.gather(session.run(work, session.settings.iterations, loops=True))
    if not runs:
        return []
    slowest = max(runs, key=lambda run: float(np.median(run.durations)))
    summary = statistics.summary(slowest.durations) | {"host_s": slowest.host}
    rate = {"n_ranks": len(runs), "flops_per_s": 2 * m * n * k / summary["duration_s"]}
    return [step.product | rate | summary]
