"""How fast training steps are predicted and played: `python benchmarks/step.py`.

Limits: 1 ms for a configuration in closed form, warm (the process has answered it before, as when
layouts are searched); 10 s and 2 GB for a step of 70 billion parameters on 1,024 GPUs, layer by
layer. The first play also compiles, unless an earlier run has.
"""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import commsim
from commsim.workload.layouts.rules import problems

WARM_LIMIT, PLAY_LIMIT, MEMORY_LIMIT = 1e-3, 10.0, 2e9  # s, s, bytes
NODES = 128
BASE = commsim.Layout(tp=8, pp=4, dp=32, global_batch=1024, seq_len=8192)
PLAYED = {
    "tp 8, pp 4, dp 32": BASE,
    "tp 8, pp 8 x 5 chunks": replace(
        BASE, pp=8, dp=16, schedule="interleaved", interleave=5, global_batch=2048
    ),
    "zero bubble, pp 8": replace(BASE, pp=8, dp=16, schedule="zero_bubble"),
    "fsdp on all": replace(BASE, tp=1, pp=1, dp=1024, zero_stage=3, framework="fsdp"),
    "fsdp x tp 8": replace(BASE, pp=1, dp=128, zero_stage=3, framework="torchtitan"),
    "1,024 micro-batches": replace(BASE, pp=16, dp=8, global_batch=8192),
}


def timed(action: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def verdict(took: float, limit: float) -> str:
    """`ok`, or the limit that it is above."""
    return "ok" if took <= limit else f"above {limit:g}"


def closed_form() -> None:
    """Prints how long a configuration takes, over a search's worth of them."""
    model, cluster = commsim.load_model("llama3-70b"), commsim.load_cluster("dgx-h100", nodes=NODES)
    layouts = [
        replace(BASE, tp=tp, pp=pp, dp=1024 // (tp * pp), micro_batch=size, recompute=recompute,
                interleave=chunks)
        for tp in (1, 2, 4, 8)
        for pp in (1, 2, 4, 8)
        for size in (1, 2)
        for recompute in ("none", "full")
        for chunks in ((1, 2) if pp > 1 else (1,))
    ]  # fmt: skip
    layouts = [layout for layout in layouts if not problems(layout, model, cluster)]

    def ask(layout: commsim.Layout) -> float:
        return timed(lambda: commsim.predict_step(model, cluster, layout))

    first = statistics.median(map(ask, layouts))
    warm = sorted(map(ask, layouts))
    median, slow = warm[len(warm) // 2], warm[len(warm) * 9 // 10]
    print(
        f"closed form, {len(layouts)} configurations: first {first * 1e3:.2f} ms, warm "
        f"{median * 1e3:.3f} ms (9 of 10 below {slow * 1e3:.2f} ms)  {verdict(median, WARM_LIMIT)}"
    )


def play(layout: commsim.Layout) -> tuple[float, float, int, float, float]:
    """Seconds and bytes at most of a new process, tasks, s of the step played and predicted."""
    model, cluster = commsim.load_model("llama3-70b"), commsim.load_cluster("dgx-h100", nodes=NODES)
    start = time.perf_counter()
    found = commsim.simulate_step(model, cluster, layout)
    took = time.perf_counter() - start
    memory = 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return took, memory, found.tasks, found.duration, found.predicted.duration


def main() -> None:
    """Prints every figure."""
    closed_form()
    print(
        f"\n{'70 B on 1,024 GPUs':<24}{'tasks':>10}{'took':>9}{'memory':>10}{'step':>11}"
        f"{'closed form':>13}"
    )
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for name, layout in PLAYED.items():
            took, memory, tasks, duration, predicted = pool.apply(play, (layout,))
            fast = verdict(took, PLAY_LIMIT)
            print(
                f"{name:<24}{tasks:>10,}{took:>7.2f} s{memory / 1e6:>7,.0f} MB{duration:>9.3f} s"
                f"{predicted:>11.3f} s  {fast if fast != 'ok' else verdict(memory, MEMORY_LIMIT)}"
            )


if __name__ == "__main__":
    main()
