"""Something that no other fault here models: settings of a plug-in, a driver, a CPU affinity.

It slows hops over the network (copies by the CPU instead of GDRCopy, proxy threads far from their
GPU), the bytes, or both; nothing of the machine is missing.
"""

from __future__ import annotations

from collections.abc import Iterator

from commsim.diagnosis.fault import Fault, Setup, Variant

WAYS = (
    ("small messages", 1.5, 1.0, 0.15), ("small messages", 2.2, 1.0, 0.15),
    ("large messages", 1.0, 1.4, 0.15), ("large messages", 1.0, 2.2, 0.15),
    ("large messages", 1.0, 6.0, 0.1),
    ("all messages", 1.5, 1.5, 0.15), ("all messages", 3.0, 3.0, 0.15),
)  # fmt: skip
"""What is slow, by which factor the hops and the bytes, and how often."""


def variants(setup: Setup) -> Iterator[Variant]:
    """Hops, bytes or both slower by some factor."""
    for words, hops, transfer, share in WAYS:
        yield Variant(
            detail=f"{words} take {max(hops, transfer):g} times as long", share=share,
            cluster=setup.cluster, library=setup.library, profile=setup.profile,
            hops=hops, transfer=transfer,
        )  # fmt: skip


FAULT = Fault(
    cause="other",
    what="a setting of software: plug-in, driver, CPU affinity or queue pairs",
    check="compare env, driver, firmware and plug-in versions with a machine that is well; "
    "switch settings back to their defaults one by one; GDRCopy (lsmod | grep gdrdrv), proxy "
    "threads",
    fix="the defaults of library and plug-in, GDRCopy installed, proxy threads on the GPU's socket",
    incidents=(
        "NVIDIA/nccl issue 2409, NCCL_IB_SPLIT_DATA_ON_QPS=1",
        "NVIDIA/nccl issue 2409, NCCL_CUMEM_ENABLE=0",
        "NVIDIA/nccl issue 2409, NCCL_PROXY_CPUSET",
        "eth-cscs, Alps, FI_HMEM_CUDA_USE_GDRCOPY=0",
        "ROCm/rccl issue 1490",
    ),
    variants=variants,
)
