"""Does the planner find what was measured to be best? `python -m validation.planning --data DIR`

DIR holds cases.json: published training runs, each with model, cluster, layout and truth. Two
questions. In every group of layouts that one source measured for one model on one machine: is the
measured best among the three predicted best, and is the predicted best within 5 % of the measured
best? And published layouts of well-known runs: how far are they from the planner's own optimum, by
its own reckoning, and what does it do otherwise?
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import commsim
from commsim.errors import CommsimError
from commsim.planning.reasons import differences
from commsim.workload.memory import memory

# What the software of a source could not do yet, or what its run kept to: its layouts are also
# compared with the best within that. Megatron-LM of SC'21 replicates optimizer states, always
# recomputes and knows neither sequence parallelism nor context parallelism; Llama 3's runs of 8,192
# tokens shard optimizer states and gradients, use no context parallelism and recompute nothing
# (arXiv:2407.21783, section 3.3.2); torchtitan's shard parameters.
HELD: dict[str, dict[str, tuple[Any, ...]]] = {
    "SC21": {
        "zero_stage": (0,), "recompute": ("full",), "overlap_grad_reduce": (False,), "cp": (1,),
        "overlap_param_gather": (False,), "tp_comm_overlap": (False,),
        "sequence_parallel": (False,),
    },
    "MLM": {"tp_comm_overlap": (False,), "cp": (1,), "recompute": ("none", "selective", "full")},
    "L3": {
        "zero_stage": (2,), "cp": (1,), "recompute": ("none",), "tp_comm_overlap": (False,),
    },
    "TT": {"zero_stage": (3,), "hsdp": (None,)},
}  # fmt: skip
# Llama 3 405B, table 4 of arXiv:2407.21783: tp 8, cp 1, pp 16 on 8,192 and 16,384 H100; how many
# chunks a stage had is not said: 126 layers, embedding and head are 8 a stage, here 4 and 8 chunks.
LLAMA_3 = {
    f"L3-{gpus}-v{chunks}": {
        "source": "L3", "model": "llama3-405b", "cluster": ("dgx-h100", gpus // 8),
        "layout": {
            "tp": 8, "pp": 16, "dp": gpus // 128, "global_batch": 2048, "seq_len": 8192,
            "interleave": chunks, "zero_stage": 2,
        },
    }
    for gpus in (8192, 16384)
    for chunks in (4, 8)
}  # fmt: skip
NEAR, PLACES = 0.05, 3
GOAL = 0.85


@dataclass(frozen=True, slots=True)
class Run:
    """One measured layout: GPU-seconds of a token, measured and predicted."""

    id: str
    measured: float
    predicted: float


@dataclass(slots=True)
class Group:
    """Layouts of one model on one machine, by one source."""

    name: str
    runs: list[Run] = field(default_factory=list)

    @property
    def place(self) -> int:
        """Where the measured best comes among the predicted, from 1."""
        best = min(self.runs, key=lambda run: run.measured)
        return 1 + sum(run.predicted < best.predicted for run in self.runs)

    @property
    def behind(self) -> float:
        """By what share the predicted best is slower than the measured best."""
        chosen = min(self.runs, key=lambda run: run.predicted)
        return chosen.measured / min(run.measured for run in self.runs) - 1

    @property
    def spread(self) -> float:
        """The slowest over the fastest, measured."""
        times = [run.measured for run in self.runs]
        return max(times) / min(times)


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """The cases whose time may be judged."""
    cases = json.loads((folder / "cases.json").read_text("utf-8"))
    return {id: case for id, case in cases.items() if case["score"] and case["sweep"]}


def measured(case: dict[str, Any], gpus: int) -> float:
    """GPU-seconds of a token."""
    truth, layout = case["truth"], case["layout"]
    tokens = layout["global_batch"] * layout["seq_len"]
    if truth["step_time_s"]:
        return float(truth["step_time_s"] * gpus / tokens)
    return 1.0 / float(truth["tokens_per_s_per_gpu"])


def groups(cases: dict[str, dict[str, Any]], whole: bool = False) -> Iterator[Group]:
    """Layouts of one sweep, model and machine; equal ones as one, by their median. whole: all that
    is in a sweep, which may hold several sizes of the machine."""
    sorted_out: dict[tuple[str, str, str], dict[str, list[tuple[str, dict[str, Any]]]]] = {}
    for id, case in cases.items():
        machine = {key: value for key, value in case["cluster"].items() if key != "name"}
        key = (case["sweep"], json.dumps(case["model"]), json.dumps(machine))
        one = json.dumps((case["model"], machine, case["layout"]))
        alike = sorted_out.setdefault((key[0], "", "") if whole else key, defaultdict(list))
        alike[one].append((id, case))
    for (sweep, *_), layouts in sorted_out.items():
        found = Group(sweep)
        for repeats in layouts.values():
            id, case = repeats[0]
            try:
                cluster = commsim.load_cluster(case["cluster"])
                model = commsim.load_model(case["model"])
                layout = commsim.Layout(**case["layout"])
                step = commsim.predict_step(model, cluster, layout)
            except CommsimError as error:
                print(f"  left out {id}: {str(error).splitlines()[0]}")
                continue
            truth = statistics.median(measured(one, cluster.n_ranks) for _, one in repeats)
            found.runs.append(Run(id, truth, step.duration * cluster.n_ranks / step.tokens))
        if len(found.runs) > 1:
            yield found


def cluster_of(told: Any) -> commsim.Cluster:
    """A cluster's dict, or a preset and its number of machines."""
    if isinstance(told, tuple):
        return commsim.load_cluster(told[0], nodes=told[1])
    return commsim.load_cluster(told)


def report_groups(title: str, found: Sequence[Group]) -> None:
    """A line each, then the shares."""
    print(f"{title:<70}{'n':>4}{'place':>7}{'behind':>9}{'spread':>8}")
    for one in found:
        print(
            f"{one.name[:68]:<70}{len(one.runs):>4}{one.place:>7}{100 * one.behind:>8.1f}%"
            f"{one.spread:>8.2f}"
        )
    for least in (2, 4):
        some = [one for one in found if len(one.runs) >= least]
        if not some:
            continue
        top = sum(one.place <= PLACES for one in some) / len(some)
        near = sum(one.behind <= NEAR for one in some) / len(some)
        both = sum(one.place <= PLACES and one.behind <= NEAR for one in some) / len(some)
        print(
            f"groups of {least} layouts or more: {len(some)}; measured best among the first "
            f"{PLACES}: {100 * top:.0f} %; predicted best within {100 * NEAR:.0f} %: "
            f"{100 * near:.0f} %; both: {100 * both:.0f} % (goal {100 * GOAL:.0f} %)"
        )
    errors = [
        abs(a.predicted / b.predicted / (a.measured / b.measured) - 1)
        for one in found
        for a, b in combinations(one.runs, 2)
    ]
    middle = 100 * statistics.median(errors)
    print(f"median error of the ratio of two steps of a group: {middle:.1f} %")


def report_published(cases: dict[str, dict[str, Any]], sources: Sequence[str], most: int) -> None:
    """Published layouts beside the planner's optimum for the same batch, framework and GPUs."""
    head = f"{'published':<14}{'model':<26}{'GPUs':>6}{'its step':>11}{'the best':>11}{'ratio':>7}"
    print(f"\n{head}")
    taken: dict[str, int] = defaultdict(int)
    for id, case in (LLAMA_3 | cases).items():
        source = case["source"]
        if source not in sources or taken[source] >= most:
            continue
        taken[source] += 1
        model = commsim.load_model(case["model"])
        cluster = cluster_of(case["cluster"])
        layout = commsim.Layout(**case["layout"])
        its = commsim.predict_step(model, cluster, layout)
        print(
            f"{id:<14}{(model.name or str(model.hidden))[:24]:<26}{cluster.n_ranks:>6}"
            f"{its.duration:>10.2f}s"
            + ("" if memory(model, cluster, layout).fits else "  (predicted not to fit)"),
            flush=True,
        )
        for what, only in (("of all", {}), ("it could say", HELD.get(source))):
            if only is None or layout.zero_stage not in only.get("zero_stage", range(4)):
                continue
            try:
                best = commsim.plan(
                    model, cluster, global_batch=layout.global_batch, seq_len=layout.seq_len,
                    framework=layout.framework, dtype=layout.dtype, only=only, top=1,
                ).best  # fmt: skip
            except CommsimError as error:
                print(f"  {what}: {str(error).splitlines()[0]}")
                continue
            other = ", ".join(differences(best, replace(best, layout=layout, step=its)))
            print(
                f"  best {what:<14}{'':<30}{best.duration:>20.2f}s"
                f"{its.duration / best.duration:>7.2f}  {other or 'the same layout'}",
                flush=True,
            )


def main() -> None:
    """Prints both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--published", default="", help="sources to plan anew, A,B,C")
    parser.add_argument("--most", type=int, default=4, help="runs of each source")
    args = parser.parse_args()
    cases = read(args.data)
    for title, whole in (("layouts of one model on one machine", False), ("\nsweeps", True)):
        report_groups(title, sorted(groups(cases, whole), key=lambda one: one.name))
    if args.published:
        report_published(cases, args.published.split(","), args.most)


if __name__ == "__main__":
    main()
