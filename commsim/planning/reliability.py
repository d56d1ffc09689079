"""What failures and slow nodes leave of a training run.

    goodput = interval / (m e^(restart / m) (e^((interval + checkpoint) / m) - 1))

m: mean time between failures of the whole job, a GPU's over the number of GPUs; failures come at
random (Poisson), also while a checkpoint is written or the job restarts (Daly 2006,
doi:10.1016/j.future.2004.11.016, equation 20). The best interval makes it greatest:

    interval = m (1 + W(-e^(-1 - checkpoint / m)))       W: Lambert's function

which is sqrt(2 checkpoint m) where checkpoints are short (Young 1974,
doi:10.1145/361147.361115). Ignored: spare nodes, checkpoints written beside compute, failures that
come together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from commsim.errors import PlanError
from commsim.units import Bytes, BytesPerSecond, Seconds
from commsim.workload.model import Model
from commsim.workload.pipeline import outline, pipeline
from commsim.workload.step import StepPrediction

GPU_MTBF: Seconds = 54 * 86400 * 16384 / 419
"""Mean time between unexpected interruptions, of one GPU: 419 in 54 days of 16,384 H100 (Llama 3,
arXiv:2407.21783, section 3.3.4)."""
RESTART: Seconds = 600.0
"""From a failure until the job computes again, an assumption: minutes, where restarts are automatic
(Llama 3 reports over 90 % of effective time at that rate of failures)."""
STATE_BYTES = 14
"""Bytes of a parameter in a checkpoint: a 16-bit weight, 32-bit main weight and two moments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """A run with failures. mtbf: of the job, s; interval: s of training between two checkpoints,
    the best; young: the short formula for it; goodput: share of the time that counts."""

    mtbf: Seconds
    checkpoint: Seconds
    restart: Seconds
    interval: Seconds
    goodput: float

    @property
    def young(self) -> Seconds:
        """Young's interval, s."""
        return math.sqrt(2 * self.checkpoint * self.mtbf)

    def to_dict(self) -> dict[str, float]:
        """Plain figures for JSON, keys with their unit."""
        return {
            "mtbf_s": self.mtbf, "checkpoint_s": self.checkpoint, "restart_s": self.restart,
            "interval_s": self.interval, "young_interval_s": self.young, "goodput": self.goodput,
        }  # fmt: skip


def reliability(
    gpus: int,
    checkpoint: Seconds,
    *,
    restart: Seconds = RESTART,
    gpu_mtbf: Seconds = GPU_MTBF,
    interval: Seconds | None = None,
) -> Reliability:
    """The share of time that a job on so many GPUs spends on what counts.

    checkpoint, restart: s that each takes; interval: between checkpoints (None: the best).

    >>> round(reliability(1, checkpoint=60.0, restart=0.0, gpu_mtbf=86400.0).goodput, 3)
    0.963
    """
    for name, value in (("gpus", gpus), ("checkpoint", checkpoint), ("gpu_mtbf", gpu_mtbf)):
        if not (value > 0 and math.isfinite(value)):
            raise PlanError(f"reliability: {name}: expected more than 0, got {value}")
    if restart < 0:
        raise PlanError(f"reliability: restart: expected 0 s or more, got {restart}")
    mtbf = gpu_mtbf / gpus
    if interval is None:
        interval = best_interval(mtbf, checkpoint)
    return Reliability(
        mtbf=mtbf, checkpoint=checkpoint, restart=restart, interval=interval,
        goodput=goodput(mtbf, checkpoint, restart, interval),
    )  # fmt: skip


def goodput(mtbf: Seconds, checkpoint: Seconds, restart: Seconds, interval: Seconds) -> float:
    """The share of time that counts, by Daly's model."""
    lost = math.exp(restart / mtbf) * math.expm1((interval + checkpoint) / mtbf)
    return interval / (mtbf * lost)


def best_interval(mtbf: Seconds, checkpoint: Seconds) -> Seconds:
    """s between checkpoints at which goodput is greatest."""
    from scipy.special import lambertw  # scipy takes long to load

    return mtbf * (1 + float(lambertw(-math.exp(-1 - checkpoint / mtbf)).real))


def checkpoint_bytes(model: Model) -> Bytes:
    """Bytes of one checkpoint of the model and its optimizer."""
    return model.parameters * STATE_BYTES


def checkpoint_duration(model: Model, storage: BytesPerSecond) -> Seconds:
    """s to write a checkpoint to storage that takes so many bytes/s in all."""
    if storage <= 0:
        raise PlanError(f"reliability: storage: expected a rate above 0, got {storage}")
    return checkpoint_bytes(model) / storage


def with_slow_node(step: StepPrediction, slowdown: float) -> Seconds:
    """s of a step where one node of the busiest stage computes `slowdown` times as long (1.1: 10 %
    slower): its stage, and everyone who waits for it."""
    if slowdown < 1:
        raise PlanError(f"slow node: expected a slowdown of 1 or more, got {slowdown}")
    layout, grid = step.layout, step.grid
    schedule = pipeline(layout.schedule)
    slow = np.ones((layout.pp, 1))
    slow[step.busiest] = slowdown

    def passed(factor: np.ndarray) -> Seconds:
        forward = np.array([[c.forward.total for c in row] for row in grid]) * factor
        backward = np.array([[c.backward.total for c in row] for row in grid]) * factor
        weight = None
        if schedule.splits:
            weight = np.array([[c.backward.weight for c in row] for row in grid]) * factor
            backward = backward - weight
        hop = 0.0 if step.hop is None else step.hop.duration
        return outline(
            layout.schedule, layout.pp, layout.micro_batches, forward.shape[1], forward, backward,
            weight, hop, forward.shape[1] > 1 or weight is not None,
        ).duration  # fmt: skip

    return step.duration + passed(slow) - passed(np.ones((layout.pp, 1)))
