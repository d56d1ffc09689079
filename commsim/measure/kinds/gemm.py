"""A matrix product on each rank's device, by itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from commsim.errors import MeasureError
from commsim.measure import statistics
from commsim.measure.plan import Step
from commsim.measure.session import Record, Session


def measure(step: Step, session: Session) -> list[Record]:
    """How long m x k by k x n takes, s, and FLOP/s (2mnk by that); of several ranks the slowest.
    host_s: what a call keeps the host busy; on a GPU the launch. One that the device cannot do has
    an `error` instead, and the table goes on.
    """
    assert step.gemm is not None
    m, n, k = step.gemm
    multiply, error = _tried(step, session)
    errors = [found for found in session.backend.everyone(error) if found]
    if errors or multiply is None:
        return [step.product | {"error": errors[0]}] if session.backend.rank == 0 else []

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


def _tried(step: Step, session: Session) -> tuple[Callable[[], None] | None, str]:
    """The product, run once, or why this device refuses it; MeasureError is bad input."""
    assert step.gemm is not None
    m, n, k = step.gemm
    try:
        multiply = session.device.matmul(m, n, k, step.gemm_dtype)
        multiply()
        session.device.finish()
    except MeasureError:
        raise
    except (RuntimeError, MemoryError) as error:  # torch's, among them out of memory
        return None, f"{type(error).__name__}: {error}".partition("\n")[0][:200]
    return multiply, ""
