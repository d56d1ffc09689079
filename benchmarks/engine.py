"""How fast schedules are built and played: CPU seconds and peak memory, each case in a process of
its own, from an imported library (compiled before).

    python benchmarks/engine.py [case ...]
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from time import process_time

MIB = 1 << 20


def play(schedule: object, network: object) -> int:
    """Plays a schedule; the number of its ops."""
    from commsim.engine import compiled
    from commsim.engine.network import lay
    from commsim.engine.plan import make_plan, punctual

    plan = make_plan([punctual(lay(schedule, network))], network.capacity)
    times = compiled.play(plan)
    assert not times.stalled
    return len(plan)


def flat(name: str, n: int, channels: int = 1, **fields: int) -> Callable[[], int]:
    """An algorithm over n ranks, each with a port of 50 GB/s at one switch, 1 us away."""
    from commsim.collectives.catalogue import algorithm
    from commsim.collectives.collective import Collective
    from commsim.engine.ideal import Ports

    def run() -> int:
        chosen = type(algorithm(name))(**fields)
        schedule = chosen.schedule(Collective("all_reduce", MIB), n, channels)
        return play(schedule, Ports(n=n, bandwidth=50e9, latency=1e-6))

    return run


def fat_tree(n: int, routing: str, seed: int = 0) -> Callable[[], int]:
    """All pairs at once over a two-tier fat-tree of 64-port switches, one NIC of 50 GB/s a rank."""
    from commsim.collectives.catalogue import algorithm
    from commsim.collectives.collective import Collective
    from commsim.engine.cluster_network import ClusterNetwork
    from commsim.topology.load import load_cluster

    def run() -> int:
        cluster = load_cluster("dgx-h100", nodes=n // 8, **{"fabric.kind": "fat-tree"})
        schedule = algorithm("direct").schedule(Collective("all_to_all", n * MIB), n)
        return play(schedule, ClusterNetwork(cluster=cluster, routing=routing, seed=seed))

    return run


def folded(nodes: int) -> Callable[[], int]:
    """A ring over all ranks of equal machines at one switch, one machine played for all."""
    from commsim.collectives.algorithms.ring import Ring
    from commsim.collectives.collective import Collective
    from commsim.engine.cluster_network import ClusterNetwork
    from commsim.engine.folding import Folded
    from commsim.topology.load import load_cluster

    def run() -> int:
        cluster = load_cluster("dgx-h100", nodes=nodes, **{"fabric.kind": "single-switch"})
        whole = ClusterNetwork(cluster=cluster)
        schedule = Ring(period=8).schedule(Collective("all_reduce", MIB), 8 * nodes)
        return play(schedule, Folded(base=whole, whole=whole, hosts=1))

    return run


def repeating(n: int, channels: int = 1) -> Callable[[], int]:
    """A ring of which rounds are built and played until they repeat, ports as above."""
    from commsim.collectives.algorithms.ring import Ring
    from commsim.collectives.collective import Collective
    from commsim.collectives.schedule import Window
    from commsim.engine import recurrence
    from commsim.engine.ideal import Ports
    from commsim.engine.network import lay
    from commsim.engine.plan import Plan, make_plan, punctual

    network = Ports(n=n, bandwidth=50e9, latency=1e-6)

    def build(window: Window) -> Plan:
        ring = Ring(window=window)
        schedule = ring.schedule(Collective("all_reduce", MIB), n, channels)
        return make_plan([punctual(lay(schedule, network))], network.capacity)

    def run() -> int:
        found = recurrence.play(build, recurrence.FIRST, lambda plan: None)
        assert found.times.jumps
        return len(found.plan)

    return run


CASES: dict[str, Callable[[], Callable[[], int]]] = {
    "ring all_reduce 1 MiB, 64 ranks": lambda: flat("ring", 64),
    "ring all_reduce 1 MiB, 256 ranks": lambda: flat("ring", 256),
    "ring all_reduce 1 MiB, 512 ranks": lambda: flat("ring", 512),
    "ring all_reduce 1 MiB, 1,024 ranks": lambda: flat("ring", 1024),
    "ring all_reduce 1 MiB, 1,024 ranks, until it repeats": lambda: repeating(1024),
    "ring all_reduce 1 MiB, 16,384 ranks, folded": lambda: folded(2048),
    "two-level ring all_reduce, 128 x 8": lambda: flat("hierarchical", 1024, group=8),
    "double binary tree all_reduce, 1,024 x 8": lambda: flat(
        "double_binary_tree", 8192, channels=2
    ),
    "all_to_all, fat-tree, ECMP, 1,024 ranks": lambda: fat_tree(1024, "ecmp"),
    "all_to_all, fat-tree, adaptive, 1,024 ranks": lambda: fat_tree(1024, "adaptive"),
    "all_to_all, fat-tree, ECMP, 2,048 ranks": lambda: fat_tree(2048, "ecmp"),
}


def measure(case: str) -> dict[str, float]:
    """CPU seconds, peak memory in MB and the number of ops of one case, in this process."""
    flat("ring", 4)()  # imports, and compiles where that was never done
    run = CASES[case]()
    start = process_time()
    ops = run()
    took = process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return {"cpu_s": took, "peak_mb": peak, "ops": ops}


def main() -> None:
    """Prints a table of the cases named on the command line, or of all."""
    if len(sys.argv) == 3 and sys.argv[1] == "--one":
        print(json.dumps(measure(sys.argv[2])))
        return
    print(f"{'case':54}{'ops':>12}{'CPU s':>9}{'us/op':>8}{'peak MB':>9}")
    for case in sys.argv[1:] or CASES:
        done = subprocess.run(
            [sys.executable, __file__, "--one", case], capture_output=True, text=True, check=False
        )
        if done.returncode:
            print(f"{case:54}failed: {done.stderr.strip().splitlines()[-1]}")
            continue
        found = json.loads(done.stdout)
        each = found["cpu_s"] / found["ops"] * 1e6
        print(
            f"{case:54}{found['ops']:12,}{found['cpu_s']:9.3f}{each:8.3f}{found['peak_mb']:9.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
