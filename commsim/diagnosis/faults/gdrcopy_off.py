"""GDRCopy off under libfabric's CXI provider: the GPU's driver copies every small message."""

from __future__ import annotations

from collections.abc import Iterator

from commsim.diagnosis.alter import env_of, with_env
from commsim.diagnosis.evidence import Clue, Evidence
from commsim.diagnosis.fault import Fault, Setup, Variant

VARIABLE = "FI_HMEM_CUDA_USE_GDRCOPY"


def variants(setup: Setup) -> Iterator[Variant]:
    """FI_HMEM_CUDA_USE_GDRCOPY=0, for NVIDIA GPUs on Slingshot."""
    on = setup.networked and setup.cluster.fabric.transport == "slingshot"
    if setup.nccl and on and env_of(setup.library).get(VARIABLE) != "0":
        yield Variant(
            detail=f"as with {VARIABLE}=0", share=1.0, cluster=setup.cluster,
            library=with_env(setup.library, {VARIABLE: "0"}), profile=setup.profile,
        )  # fmt: skip


def clues(evidence: Evidence, setup: Setup) -> Iterator[Clue]:
    """The variable."""
    if evidence.set_to(VARIABLE) == "0":
        yield Clue(text=f"log: {VARIABLE}=0 is set")


FAULT = Fault(
    cause="gdrcopy_off",
    what="GDRCopy is off: small messages over Slingshot are copied by the GPU's driver",
    check=f"{VARIABLE} in the job's environment; lsmod | grep gdrdrv on every node; "
    "ldconfig -p | grep gdrapi (in the container, too)",
    fix=f"{VARIABLE}=1, the gdrdrv kernel module loaded, libgdrapi where libfabric finds it",
    variants=variants,
    clues=clues,
    settings=frozenset({VARIABLE}),
)
