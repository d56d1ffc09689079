"""NVLink SHARP (NVLS) off: NCCL falls back to rings and trees."""

from __future__ import annotations

from collections.abc import Iterator

from commsim.diagnosis.alter import env_of, with_env
from commsim.diagnosis.evidence import Clue, Evidence
from commsim.diagnosis.fault import Fault, Setup, Variant


def variants(setup: Setup) -> Iterator[Variant]:
    """NCCL_NVLS_ENABLE=0."""
    if setup.nccl and env_of(setup.library).get("NCCL_NVLS_ENABLE") != "0":
        yield Variant(
            detail="as with NCCL_NVLS_ENABLE=0", share=1.0, cluster=setup.cluster,
            library=with_env(setup.library, {"NCCL_NVLS_ENABLE": "0"}), profile=setup.profile,
        )  # fmt: skip


def clues(evidence: Evidence, setup: Setup) -> Iterator[Clue]:
    """No multicast in the log, or the variable."""
    yield from evidence.told("nvls")
    if evidence.set_to("NCCL_NVLS_ENABLE") == "0":
        yield Clue(text="NCCL log: NCCL_NVLS_ENABLE=0 is set")


FAULT = Fault(
    cause="nvls_off",
    what="NVLS (reduction inside the NVSwitch) is off",
    check="NCCL_DEBUG=INFO says 'NVLS multicast support is not available' or NCCL_NVLS_ENABLE=0; "
    "nvidia-smi -q | grep -A2 Fabric: State Completed",
    fix="unset NCCL_NVLS_ENABLE; start nvidia-fabricmanager on every node, with a driver that "
    "fits; containers need /dev/nvidia-caps-imex-channels on NVLink racks",
    incidents=("NVIDIA/nccl issue 2409, run with NCCL_NVLS_ENABLE=0",),
    variants=variants,
    clues=clues,
    settings=frozenset({"NCCL_NVLS_ENABLE"}),
)
