"""Excerpts of published logs whose cause is known, typed from their sources.

Sizes in bytes, times in us (out of place).
"""

from __future__ import annotations

import pytest

import commsim
from commsim.diagnosis.examination import diagnose
from commsim.diagnosis.findings import Findings
from commsim.libraries.nccl.nccl import Nccl
from commsim.measurements.measurement import Measurement
from commsim.topology.load import load_cluster

POLARIS = {
    "name": "polaris", "nodes": 2,
    "node": {
        "gpu": "A100-SXM4-40GB", "gpus": 4, "interconnect": "nvlink-mesh", "cpu": "amd",
        "nics": {
            "count": 2, "rate": "200Gbit/s", "gpudirect": True, "placement": "per-socket",
        },
    },
    "fabric": {"kind": "dragonfly", "transport": "slingshot", "sharp": False},
}  # fmt: skip
# github.com/argonne-lcf/alcf-nccl-tests, results_polaris/nccl_2_18/n2.g4.2024-04-29-18-41-24
SOCKETS = (  # all_gather_output.dat.2: sockets, no libfabric plug-in
    (128, 82.20), (2048, 62.63), (32768, 71.87), (524288, 489.5), (8388608, 2716.3),
    (134217728, 34966),
)  # fmt: skip
PLUGIN = (  # all_gather_output.dat.4: the plug-in
    (128, 23.16), (2048, 22.81), (32768, 28.85), (524288, 81.23), (8388608, 314.8),
    (134217728, 3355.8),
)  # fmt: skip

H100 = {
    "name": "h100-4", "nodes": 1,
    "node": {"gpu": "H100-SXM5-80GB", "gpus": 8, "interconnect": "nvswitch", "cpu": "intel"},
}  # fmt: skip
# github.com/waynehacking8/nccl-collectives-bench, results/proto_sweep.txt and all_reduce.txt: four
# of eight GPUs, driven by one thread
LL = ((268435456, 2741.05),)
CHOSEN = (
    (2048, 23.39), (16384, 23.96), (131072, 27.49), (8388608, 62.88), (67108864, 325.86),
    (536870912, 2311.72), (4294967296, 17735.5),
)  # fmt: skip

ROCE = {
    "name": "h100-roce", "nodes": 2,
    "node": {
        "gpu": "H100-SXM5-80GB", "gpus": 8, "interconnect": "nvswitch",
        "nics": {"count": 8, "rate": "400Gbit/s", "gpudirect": True, "placement": "per-gpu"},
    },
    "fabric": {"kind": "single-switch", "transport": "roce", "sharp": False},
}  # fmt: skip
# github.com/NVIDIA/nccl issue 2409: send_recv between two GPUs of one rail, 1 GiB at 13.1 GB/s with
# ACS and a translating IOMMU, at 48.4 GB/s without
REDIRECTED, CLEARED = (1 << 30) / 13.1e9 * 1e6, (1 << 30) / 48.4e9 * 1e6


def examined(
    table: tuple[tuple[int, float], ...],
    operation: str,
    cluster: dict[str, object],
    library: Nccl,
    ranks: tuple[int, ...] | None = None,
) -> Findings:
    machine = load_cluster(cluster)
    found = [
        Measurement(
            commsim.Collective(operation, nbytes=nbytes, ranks=ranks), duration=us * 1e-6,
            cluster=machine,
        )
        for nbytes, us in table
    ]  # fmt: skip
    return diagnose(found, machine, library=library)


SLINGSHOT = Nccl(version="2.18.5", env={"NCCL_NET_GDR_LEVEL": "PHB", "NCCL_CROSS_NIC": "1"})
NEW = Nccl(version="2.29.2", launch="single")


@pytest.mark.parametrize(
    ("cause", "found"),
    [
        ("tcp_fallback", examined(SOCKETS, "all_gather", POLARIS, SLINGSHOT)),
        ("forced_protocol", examined(LL, "all_reduce", H100, NEW, (0, 1, 2, 3))),
        (
            "acs_on",
            examined(((1 << 30, REDIRECTED),), "send_recv", ROCE, Nccl(version="2.30.7"), (0, 8)),
        ),
    ],
    ids=["sockets", "LL", "acs"],
)
def test_the_true_cause_is_among_the_first_three(cause: str, found: Findings) -> None:
    assert not found.healthy
    assert cause in [hypothesis.cause for hypothesis in found.hypotheses[:3]]


@pytest.mark.parametrize(
    "found",
    [
        examined(PLUGIN, "all_gather", POLARIS, SLINGSHOT),
        examined(CHOSEN, "all_reduce", H100, NEW, (0, 1, 2, 3)),
        examined(((1 << 30, CLEARED),), "send_recv", ROCE, Nccl(version="2.30.7"), (0, 8)),
    ],
    ids=["plug-in", "chosen", "cleared"],
)
def test_the_same_machine_without_the_fault_is_healthy(found: Findings) -> None:
    assert found.healthy
