"""How fast the answers come: `python benchmarks/predict.py` prints medians beside their limits.

Warm: the process has answered the same question at another size before, as in a sweep.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import commsim

# preset, nodes; the ranks are nodes x the GPUs of one machine
CASES = (
    ("dgx-h100", 1),
    ("dgx-a100", 2),
    ("dgx-h100", 16),
    ("dgx-h100", 128),
    ("gb200-nvl72", 18),
    ("dgx-h100", 2048),
)
OPERATIONS = ("all_reduce", "all_gather", "all_to_all")
SIZES = tuple(1 << k for k in range(3, 34))  # 8 B .. 8 GiB, 31 sizes
WARM_LIMIT, SHELL_LIMIT, SWEEP_LIMIT = 1e-3, 0.8, 0.2  # s


def timed(action: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def warm_predictions(cluster: commsim.Cluster, operation: str) -> tuple[float, float]:
    """(first, median of later ones) seconds of one prediction, each at a size not asked before."""

    def ask(nbytes: int) -> float:
        return timed(lambda: commsim.predict(commsim.Collective(operation, nbytes), cluster))

    first = ask(1 << 20)
    return first, statistics.median(ask((1 << 20) + 1024 * k) for k in range(1, 102))


def sweep(cluster: commsim.Cluster) -> float:
    """Median seconds of a sweep over 31 sizes, after one sweep over neighbouring sizes."""

    def run(shift: int) -> None:
        for nbytes in SIZES:
            commsim.predict(commsim.Collective("all_reduce", nbytes + 4 * shift), cluster)

    run(0)
    return statistics.median(timed(lambda shift=shift: run(shift)) for shift in range(1, 6))


def shell() -> float:
    """Median seconds of `commsim predict` in a new process."""
    command = [
        sys.executable, "-m", "commsim", "predict", "dgx-h100", "all_reduce", "--size", "1GiB",
        "--nodes", "4",
    ]  # fmt: skip
    return statistics.median(
        timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
        for _ in range(5)
    )


def verdict(took: float, limit: float) -> str:
    """`ok`, or how far above the limit."""
    return "ok" if took <= limit else f"above {limit:g} s"


def main() -> None:
    """Prints every figure."""
    print(f"{'one prediction':<24}{'ranks':>7}  {'operation':<12}{'first':>10}{'warm':>10}")
    for preset, nodes in CASES:
        cluster = commsim.load_cluster(preset, nodes=nodes)
        for operation in OPERATIONS:
            first, warm = warm_predictions(cluster, operation)
            print(
                f"{preset + ' x ' + str(nodes):<24}{cluster.n_ranks:>7}  {operation:<12}"
                f"{first * 1e3:>7.2f} ms{warm * 1e3:>7.3f} ms  {verdict(warm, WARM_LIMIT)}"
            )
    took = sweep(commsim.load_cluster("dgx-h100", nodes=128))
    print(f"sweep of 31 sizes on 1,024 ranks, warm: {took:.3f} s  {verdict(took, SWEEP_LIMIT)}")
    took = shell()
    print(f"`commsim predict` from the shell: {took:.3f} s  {verdict(took, SHELL_LIMIT)}")


if __name__ == "__main__":
    main()
