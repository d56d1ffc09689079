"""`python -m validation.ddp_classics`: what bucketing and overlap are worth; what was published.

First ResNet-50, VGG-16 and BERT-Large on 8 V100 a machine over Ethernet, every schedule; then each
published data-parallel step as a multiple of the same stack's step on one GPU: measured, predicted.
Where a machine ran both with and without overlap, the gain of overlap too. Last, ResNet-50 on one
GPU, samples/s, as `predict_step` has it. Nothing is fitted.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median

from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster
from commsim.workload.classics import SCHEDULES, Group, compare, step_of
from commsim.workload.layout import Layout
from commsim.workload.load import load_model
from commsim.workload.model import Model
from commsim.workload.step import predict_step

TABLE = Path(__file__).with_name("published") / "ddp_classics.csv"
ETHERNET = (("10Gbit/s", "tcp"), ("25Gbit/s", "tcp"), ("100Gbit/s", "tcp"), ("100Gbit/s", "roce"))
# (batch, tokens a sample, s of one V100 alone): BERT-Large from Lambda's table. For the two
# convolutional networks the roofline's; no figure in the table fits.
CLASSICS = {"resnet-50": (64, 1, None), "vgg-16": (64, 1, None), "bert-large": (16, 384, 0.2807)}
GPT = {
    "model_type": "gpt2", "n_embd": 1536, "n_layer": 16, "n_head": 16, "vocab_size": 51200,
    "n_positions": 2048,
}  # fmt: skip


def v100(rate: str, transport: str, nodes: int = 4, gpus: int = 8) -> Cluster:
    """Machines with V100 on NVLink and one NIC."""
    return load_cluster(
        {
            "name": f"v100-{rate}-{transport}",
            "nodes": nodes,
            "node": {
                "gpu": "V100-SXM2-16GB",
                "gpus": gpus,
                "interconnect": "nvlink-mesh",
                "nics": {"count": 1, "rate": rate, "placement": "single"},
            },
            "fabric": {"kind": "single-switch", "transport": transport},
        }
    )


def pcie(gpu: str, gpus: int) -> Cluster:
    """One machine whose GPUs meet over PCIe."""
    node = {"gpu": gpu, "gpus": gpus, "interconnect": "pcie-host", "cpu": "amd"}
    return load_cluster({"name": gpu, "nodes": 1, "node": node})


def machine(name: str, nodes: int, ranks: int) -> Cluster:
    """A row's cluster; what the sources do not say (sockets, switches) is the default."""
    if name == "v100-ib":
        return v100("100Gbit/s", "infiniband", nodes)
    if name == "v100-2":
        return v100("100Gbit/s", "infiniband", 1)
    if name == "a100":
        return load_cluster("dgx-a100-80")
    if name == "h100":
        return load_cluster("hgx-h100")
    if name == "rtx4090-2":
        return pcie("RTX-4090", 2)
    return pcie({"a100-pcie": "A100-PCIe-80GB", "h100-pcie": "H100-PCIe-80GB"}[name], ranks)


@lru_cache
def model(name: str) -> Model:
    """A row's model."""
    return load_model(GPT if name == "gpt-h1536" else name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One published step: how many times as long as on one GPU, measured and predicted."""

    row: str
    model: str
    machine: str
    ranks: int
    schedule: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1


def judged(only: str = "") -> list[Judged]:
    """Every row of the table, or those of one model."""
    with TABLE.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    found = []
    for row in rows:
        if only not in ("", row["model"]):
            continue
        ranks = int(row["ranks"])
        cluster = machine(row["machine"], int(row["nodes"]), ranks)
        group = Group(cluster, tuple(range(ranks)))
        alone = float(row["alone_s"])
        step = step_of(
            model(row["model"]), cluster, int(row["batch"]), int(row["seq_len"]), alone,
            row["dtype"], row["recompute"] == "1",
        )  # fmt: skip
        schedules = {row["schedule"]: SCHEDULES[row["schedule"]]}
        found.append(
            Judged(
                row=row["row"], model=row["model"], machine=row["machine"], ranks=ranks,
                schedule=row["schedule"], measured=float(row["step_s"]) / alone,
                predicted=compare(step, group, schedules).duration(row["schedule"]) / alone,
            )
        )  # fmt: skip
    return found


def one_gpu() -> list[tuple[str, int, float, float]]:
    """GPU, batch and samples/s of ResNet-50 on it alone: measured, predicted."""
    with TABLE.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    found = {}
    for row in rows:
        if row["model"] != "resnet-50":
            continue
        gpu = machine(row["machine"], 1, 2).gpu.name
        batch, measured = int(row["batch"]), float(row["alone_s"])
        layout = Layout(
            framework="ddp", micro_batch=batch, global_batch=batch, dtype="float16", zero_stage=0
        )
        told = predict_step(model("resnet-50"), pcie(gpu, 1), layout).duration
        found[gpu] = gpu, batch, batch / measured, batch / told
    return list(found.values())


def main() -> None:
    """Prints the tables."""
    print("8 V100 a machine, 4 machines, Ethernet; ms a step")
    for name, (batch, seq_len, alone) in CLASSICS.items():
        for rate, transport in ETHERNET:
            cluster = v100(rate, transport)
            c = compare(step_of(model(name), cluster, batch, seq_len, alone), Group(cluster))
            times = "  ".join(f"{s} {c.duration(s) * 1e3:.0f}" for s in c.spans)
            print(
                f"{name:10} {rate:>9} {transport:4}  alone {c.alone * 1e3:.0f}  {times}  "
                f"fusing {c.gain('fused', 'per parameter'):.2f}x  "
                f"overlap {c.gain('bucketed', 'fused'):.2f}x  hidden {c.hidden('bucketed'):.0%}"
            )
    rows = judged()
    print("\nstep as a multiple of one GPU's: measured, predicted, error")
    for r in rows:
        print(
            f"{r.row:8} {r.model:10} {r.machine:10} {r.ranks:3} {r.schedule:9} "
            f"{r.measured:.3f}  {r.predicted:.3f}  {r.error:+.1%}"
        )
    errors = [abs(r.error) for r in rows]
    within = sum(e <= 0.15 for e in errors)
    print(f"{within} of {len(rows)} within 15 %; median error {median(errors):.1%}")
    print("\ngain of overlap (step without over step with, each over its own single GPU)")
    steps = {(r.model, r.machine, r.ranks, r.schedule): r for r in rows}
    for (name, place, ranks, schedule), plain in steps.items():
        other = steps.get((name, place, ranks, "bucketed"))
        if schedule == "fused" and other:
            real = plain.measured / other.measured
            told = plain.predicted / other.predicted
            print(
                f"{name} {place} {ranks}: measured {real:.3f}x, predicted {told:.3f}x, "
                f"{told / real - 1:+.1%}"
            )
    print("\nResNet-50 on one GPU, samples/s")
    for gpu, batch, measured, predicted in one_gpu():
        print(
            f"{gpu:15} batch {batch:4}: measured {measured:.0f}, predicted {predicted:.0f}, "
            f"{predicted / measured - 1:+.0%}"
        )


if __name__ == "__main__":
    main()
