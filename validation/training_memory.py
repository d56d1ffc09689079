"""Predicted memory of training steps against what was published.

    python -m validation.training_memory --data DIR

DIR/cases.json holds published training runs: for each id, "model" (Hugging Face keys), "cluster" (a
cluster file), "layout" (fields of Layout), "source", "score" (it ran), "memory" (its memory is
judged) and "truth" with "peak_mem_gb", "mem_unit" (GB, GiB or unknown: the nearer counts), "oom".
A source is also shown left out: with the allocator's margin fitted to the others, and, where it is
the only one of its framework, with the constants that one would have taken without it.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import commsim
from commsim.topology.cluster import Cluster
from commsim.workload.footprint.keeping import Keeping, keeping
from commsim.workload.layout import Layout
from commsim.workload.load import load_model
from commsim.workload.memory import Memory, memory
from commsim.workload.model import Model

UNITS = {"GB": (1e9,), "GiB": (2.0**30,), "unknown": (1e9, 2.0**30)}
MARGINS = np.arange(0.0, 0.101, 0.01)
# One source alone ran each of these frameworks. What one would have taken without it: torchtitan's
# numbers for other trainers on FSDP; for any other framework the logits and pipelines of Megatron.
WITHOUT: dict[str, Callable[[Layout], Keeping]] = {
    "fsdp": lambda layout: keeping(replace(layout, framework="torchtitan")),
    "other": lambda layout: replace(keeping(layout), logits=Keeping().logits, buffered=0),
}

EXPLAINED = """
BS-136 (206 B parameters, TP 4, PP 12, DP 8, bf16) ended out of memory, and no mechanism that tells
it from runs that did not was found. Counted alike, BS-119 needs 97 % of it and printed 67 GB of the
GPU's 80; BS-129 needs 5 % more, printed 74 GB and ran. A copy of all gradients in 16 bit while they
are reduced (DeepSpeed 0.6.5, runtime/engine.py, allreduce_bucket) comes when the activations are
gone. A margin that lets BS-136 fail lets BS-129 fail too. From the source's own figures: BS-132, of
the same width with a layer less on each stage and half the heads, printed 59 GB (59.0 here). A
layer more is 617 M parameters of 9.5 bytes, 5.9 GB, and 1.4 GB of inputs in flight; heads cost 2 GB
for 32 (BS-118, BS-119), so 4: 70 of 80 GB. What it ended of is nothing that grows with the model.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One published run. printed: GB or GiB of its peak; 0: none."""

    name: str
    source: str
    model: Model
    cluster: Cluster
    layout: Layout
    printed: float
    unit: str
    oom: bool
    judged: bool


def read(folder: Path) -> list[Case]:
    """The runs that ended well or out of memory."""
    records: dict[str, Any] = json.loads((folder / "cases.json").read_text())
    clusters: dict[str, Cluster] = {}
    models: dict[str, Model] = {}
    cases = []
    for name, record in records.items():
        if not (record["memory"] or record["score"]):
            continue
        model, cluster = json.dumps(record["model"]), json.dumps(record["cluster"])
        if model not in models:
            models[model] = load_model(record["model"])
        if cluster not in clusters:
            clusters[cluster] = commsim.load_cluster(record["cluster"])
        truth = record["truth"]
        cases.append(
            Case(
                name=name,
                source=record["source"],
                model=models[model],
                cluster=clusters[cluster],
                layout=Layout(**record["layout"]),
                printed=truth["peak_mem_gb"] or 0.0,
                unit=truth["mem_unit"],
                oom=truth["oom"],
                judged=record["memory"],
            )
        )
    return cases


def error(case: Case, found: Memory) -> float:
    """Signed relative error of the peak, in the nearer unit where it is unknown."""
    return min((found.peak / (case.printed * unit) - 1 for unit in UNITS[case.unit]), key=abs)


def errors(cases: Sequence[Case], change: Callable[[Case], Keeping | None]) -> np.ndarray:
    """Signed relative errors, each with what `change` says that the framework keeps."""
    return np.array(
        [error(c, memory(c.model, c.cluster, c.layout, change(c))) for c in cases], dtype=float
    )


def left_out(source: str, cases: Sequence[Case]) -> np.ndarray:
    """Errors of a source, with the constants that one would have without it."""
    others = [c for c in cases if c.source != source]
    margin = min(
        MARGINS, key=lambda m: float(np.median(abs(errors(others, lambda c: _with(c, m)))))
    )
    frameworks = {c.layout.framework for c in others}

    def change(case: Case) -> Keeping:
        framework = case.layout.framework
        if framework in frameworks or framework not in WITHOUT:
            return _with(case, margin)
        kept = WITHOUT[framework](case.layout)
        return replace(kept, shows=keeping(case.layout).shows, margin=margin)

    return errors([c for c in cases if c.source == source], change)


def _with(case: Case, margin: float) -> Keeping:
    kept = keeping(case.layout)
    return replace(kept, margin=margin) if kept.margin else kept


def _line(name: str, found: np.ndarray) -> str:
    size = abs(found)
    return (
        f"{name:<12} n {len(found):>3}  median error {np.median(size):6.1%}  "
        f"p90 {np.quantile(size, 0.9):6.1%}  signed {np.median(found):+6.1%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="folder with cases.json")
    parser.add_argument("--rows", action="store_true", help="print every judged run")
    arguments = parser.parse_args()
    cases = read(arguments.data)
    judged = [c for c in cases if c.judged and not c.oom and c.printed]
    by_source: dict[str, list[float]] = defaultdict(list)
    found = errors(judged, lambda _: None)
    for case, one in zip(judged, found, strict=True):
        by_source[case.source].append(one)
        if arguments.rows:
            print(f"{case.name:<12} {one:+7.1%}")
    print(_line("all", found))
    for source, some in sorted(by_source.items()):
        print(_line(source, np.array(some)))
    for source in sorted(by_source):
        print(_line(f"without {source}", left_out(source, judged)))
    results = [(c, memory(c.model, c.cluster, c.layout)) for c in cases]
    ooms = [(c, m) for c, m in results if c.oom]
    ran = [(c, m) for c, m in results if not c.oom]
    wrong = [f"{c.name} ({m.headroom / m.capacity:+.0%} left)" for c, m in ooms if m.fits]
    print(f"out of memory, predicted to fit: {len(wrong)} of {len(ooms)} {' '.join(wrong)}")
    wrong = [f"{c.name} ({-m.headroom / m.capacity:.0%} over)" for c, m in ran if not m.fits]
    print(f"ran, predicted not to fit: {len(wrong)} of {len(ran)} {' '.join(wrong)}")
    print(EXPLAINED)


if __name__ == "__main__":
    main()
