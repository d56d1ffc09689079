"""How fast plans come: `python benchmarks/plan.py` prints each search beside its limit.

Searches run one after the other, in this process alone unless a search is large enough for "auto"
to use all cores; caches are cold for each, as they are for a user. NCCL's settings are searched for
the best five, as the command does.
"""

from __future__ import annotations

import subprocess
import sys

# model, preset, nodes, framework, sequences of a step, limit in s of real time on two cores
CASES = (
    ("llama3-70b", "dgx-h100", 16, "megatron", 512, 10.0),
    ("llama3-70b", "dgx-h100", 16, "torchtitan", 512, 10.0),
    ("llama3-405b", "dgx-h100", 2048, "megatron", 2048, 60.0),
    ("mixtral-8x7b", "dgx-h100", 16, "megatron", 512, 60.0),
)
EACH_LIMIT = 1e-3  # s for one layout searched
SCRIPT = """
import sys, time
import commsim
model, preset, nodes, framework, batch = sys.argv[1:]
start, spent = time.perf_counter(), time.process_time()
plans = commsim.plan(
    commsim.load_model(model), commsim.load_cluster(preset, nodes=int(nodes)),
    global_batch=int(batch), seq_len=8192, framework=framework, tuned=5,
)
print(time.perf_counter() - start, time.process_time() - spent, plans.searched, plans.timed)
"""


def verdict(took: float, limit: float) -> str:
    """`ok`, or how far above the limit."""
    return "ok" if took <= limit else f"above {limit:g} s"


def main() -> None:
    """Prints every search."""
    for model, preset, nodes, framework, batch, limit in CASES:
        asked = [model, preset, str(nodes), framework, str(batch)]
        ran = subprocess.run(
            [sys.executable, "-c", SCRIPT, *asked], check=True, capture_output=True, text=True
        )
        took, spent, searched, timed = map(float, ran.stdout.split())
        each = took / searched
        print(
            f"{model:<14}{preset} x {nodes:<6}{framework:<11}{took:>7.1f} s ({spent:.1f} s of one "
            f"CPU)  {verdict(took, limit):<12}{searched:>12,.0f} layouts, {timed:,.0f} timed, "
            f"{each * 1e6:.0f} us each  {verdict(each, EACH_LIMIT)}"
        )


if __name__ == "__main__":
    main()
