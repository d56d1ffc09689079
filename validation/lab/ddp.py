"""A training step of torch's DDP over a slow link: from one rank's compute time, and for real.

    step = forward + max(backward, end of the last bucket) + optimizer
    end_k = max(end_{k-1}, ready_k) + all_reduce(bytes_k)

ready_k: when the last gradient of bucket k is complete, as one rank alone measures it; all_reduce:
what commsim predicts. Buckets fill in the order in which gradients become ready, the reverse of the
model's, the first up to 1 MiB, the others up to 25 MiB, each closed by the gradient that reaches
its limit (S. Li et al., VLDB 13(12), 2020, 10.14778/3415478.3415530; torch's
compute_bucket_assignment_by_size). Ignored: buckets under way at once, CPU time that communication
takes from computation.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from commsim.units import MIB, Bytes, Seconds, format_size
from validation.lab.compare import expected
from validation.lab.cores import HERE, Cores
from validation.lab.layout import Layout, parse
from validation.lab.network import network, refusal
from validation.lab.probe import probe
from validation.lab.run import outputs

FIRST_BUCKET = 1 * MIB  # torch.distributed._DEFAULT_FIRST_BUCKET_BYTES
BUCKET = 25 * MIB  # torch.nn.parallel.distributed._DEFAULT_BUCKET_CAP_MB
TOPOLOGIES = ("2@150Mbit/s", "2@300Mbit/s", "2@700Mbit/s")
LIMIT = 300.0  # s that a run may take


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The MLP and how it is trained. cap_mib: DDP's bucket_cap_mb (None: its default)."""

    width: int = 1024
    layers: int = 8
    batch: int = 256
    steps: int = 5
    cap_mib: int | None = None


TRAININGS = (Training(), Training(cap_mib=4), Training(batch=1024))


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """What one rank without peers takes, s. ready: when each parameter's gradient is complete, from
    the start of the backward pass; nbytes: of each; both in the model's order."""

    forward: Seconds
    backward: Seconds
    after: Seconds
    ready: tuple[Seconds, ...]
    nbytes: tuple[Bytes, ...]

    @property
    def whole(self) -> Seconds:
        return self.forward + self.backward + self.after


def buckets(
    nbytes: Sequence[Bytes], order: Sequence[int], first: Bytes = FIRST_BUCKET, cap: Bytes = BUCKET
) -> list[list[int]]:
    """Which parameters travel together, in the order of `order`: a bucket is closed by the gradient
    with which it reaches its limit.

    >>> buckets([10, 10, 10], [2, 1, 0], first=10, cap=20)
    [[2], [1, 0]]
    """
    found: list[list[int]] = []
    filling: list[int] = []
    for index in order:
        filling.append(index)
        if sum(nbytes[i] for i in filling) >= (cap if found else first):
            found.append(filling)
            filling = []
    return [*found, filling] if filling else found


def step(
    alone: Alone, groups: Sequence[Sequence[int]], all_reduce: Callable[[Bytes], Seconds]
) -> Seconds:
    """How long the step takes, s, as the module's formula says."""
    end = 0.0
    for group in groups:
        ready = max(alone.ready[i] for i in group)
        end = max(end, ready) + all_reduce(sum(alone.nbytes[i] for i in group))
    return alone.forward + max(alone.backward, end) + alone.after


def predict(alone: Alone, layout: Layout, training: Training, cores: Cores = HERE) -> Seconds:
    """The step of every rank of the layout, s."""
    order = sorted(range(len(alone.ready)), key=lambda i: alone.ready[i])
    cap = BUCKET if training.cap_mib is None else training.cap_mib * MIB
    first = FIRST_BUCKET if training.cap_mib is None else cap
    groups = buckets(alone.nbytes, order, first, cap)
    return step(alone, groups, lambda n: expected("gloo", layout, "all_reduce", n, cores))


def measure(layout: Layout, training: Training, ranks: int) -> list[dict[str, object]]:
    """What each of `ranks` ranks tells of its steps; one rank: alone."""
    plan = {key: getattr(training, key) for key in Training.__dataclass_fields__}
    worker = [sys.executable, "-m", "validation.lab.ddp_worker", json.dumps(plan)]
    with network(layout) as built:
        return [json.loads(text) for text in outputs("gloo", worker, built, ranks, LIMIT)]


def measure_alone(layout: Layout, training: Training) -> Alone:
    """One rank's compute, through the same code, without anyone to talk to."""
    told = measure(layout, training, 1)[0]
    return Alone(
        forward=told["forward"], backward=told["backward"], after=told["after"],  # type: ignore[arg-type]
        ready=tuple(told["ready"]), nbytes=tuple(told["bytes"]),  # type: ignore[arg-type]
    )  # fmt: skip


def main(topologies: Sequence[str] | None, *, quick: bool) -> None:
    """Prints one line a topology: predicted and real step."""
    if why := refusal():
        print(f"skipped: {why}")
        return
    print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    cores = probe("gloo")
    print(f"gloo: {cores}")
    for text in topologies or (TOPOLOGIES[1:2] if quick else TOPOLOGIES):
        layout = parse(text)
        for training in TRAININGS[:1] if quick else TRAININGS:
            alone = measure_alone(layout, training)
            real = [float(each["whole"]) for each in measure(layout, training, layout.n)]  # type: ignore[arg-type]
            took, guess = statistics.mean(real), predict(alone, layout, training, cores)
            print(
                f"DDP {layout.name} Mbit/s, {format_size(sum(alone.nbytes))} of gradients, batch "
                f"{training.batch}, buckets "
                f"{'of DDP' if training.cap_mib is None else f'of {training.cap_mib} MiB'}: alone "
                f"{alone.whole * 1e3:.0f} ms, predicted {guess * 1e3:.0f} ms, "
                f"real {took * 1e3:.0f} ms, error {guess / took - 1:+.1%}",
                flush=True,
            )
