"""How far `simulate` is from `predict` on idle clusters: every operation on the presets.

    python benchmarks/agreement.py [preset ...]

Prints each case outside 3 %, then by what was played how many there were, how many lie within 3 %,
and in how many hops are what the profile says.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from commsim.collectives.collective import OPERATIONS, Collective
from commsim.errors import CommsimError
from commsim.prediction import predict
from commsim.simulation import simulate
from commsim.topology.load import load_cluster

MIB = 1 << 20
NODES, SIZES = (1, 2, 3, 4, 8), (4, 64, 1024)  # machines; MiB
CLOSE = 0.03
PRESETS = Path(__file__).parent.parent / "topologies"


def main() -> None:
    """Prints the cases and the table."""
    found: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for name in sys.argv[1:] or sorted(path.stem for path in PRESETS.glob("*.toml")):
        for nodes in NODES:
            cluster = load_cluster(name, nodes=nodes)
            if cluster.n_ranks < 2:
                continue
            for operation in sorted(set(OPERATIONS) - {"barrier"}):
                for size in SIZES:
                    asked = Collective(operation, size * MIB)
                    try:
                        p, x = predict(asked, cluster), simulate(asked, cluster)
                    except CommsimError as error:
                        print(f"{name} x {nodes} {operation} {size} MiB: {error}")
                        continue
                    ratio = x.duration / p.duration
                    adjusted = any(note.startswith("hops take") for note in x.notes)
                    found[p.algorithm].append((ratio, adjusted))
                    if abs(ratio - 1) > CLOSE:
                        print(
                            f"{name} x {nodes} {operation} {size} MiB, {p.algorithm}: {ratio:.3f}"
                        )
    print(f"{'played':16}{'cases':>8}{'within 3 %':>12}{'from':>8}{'to':>8}{'hops as said':>14}")
    everything = [each for cases in found.values() for each in cases]
    for algorithm, cases in [*sorted(found.items()), ("all", everything)]:
        ratios = [ratio for ratio, _ in cases]
        close = sum(abs(ratio - 1) <= CLOSE for ratio in ratios)
        as_said = sum(not adjusted for _, adjusted in cases)
        print(
            f"{algorithm:16}{len(cases):8,}{close:12,}{min(ratios):8.3f}{max(ratios):8.3f}"
            f"{as_said:14,}"
        )


if __name__ == "__main__":
    main()
