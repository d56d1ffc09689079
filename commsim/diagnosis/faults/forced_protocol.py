"""NCCL_PROTO or NCCL_ALGO left over from an experiment: NCCL does not choose by itself."""

from __future__ import annotations

from collections.abc import Iterator

from commsim.diagnosis.alter import env_of, with_env
from commsim.diagnosis.evidence import Clue, Evidence
from commsim.diagnosis.fault import Fault, Setup, Variant

FORCED = (
    ("NCCL_PROTO", "LL", 0.3), ("NCCL_PROTO", "LL128", 0.25), ("NCCL_PROTO", "Simple", 0.25),
    ("NCCL_ALGO", "Ring", 0.1), ("NCCL_ALGO", "Tree", 0.1),
)  # fmt: skip


def variants(setup: Setup) -> Iterator[Variant]:
    """Each protocol, and the two oldest algorithms."""
    if not setup.nccl:
        return
    given = env_of(setup.library)
    for name, value, share in FORCED:
        if name not in given:
            yield Variant(
                detail=f"as with {name}={value}", share=share, cluster=setup.cluster,
                library=with_env(setup.library, {name: value}), profile=setup.profile,
            )  # fmt: skip


def clues(evidence: Evidence, setup: Setup) -> Iterator[Clue]:
    """The variables in the log."""
    for name in ("NCCL_PROTO", "NCCL_ALGO"):
        if (value := evidence.set_to(name)) is not None:
            yield Clue(text=f"NCCL log: {name}={value} is set")


FAULT = Fault(
    cause="forced_protocol",
    what="a protocol or algorithm is forced on NCCL",
    check="env | grep NCCL_; /etc/nccl.conf and ~/.nccl.conf; NCCL_DEBUG=INFO with "
    "NCCL_DEBUG_SUBSYS=ENV lists what NCCL took",
    fix="unset NCCL_PROTO and NCCL_ALGO, in the job script, the image and nccl.conf",
    incidents=(
        "NVIDIA/nccl issue 2409, runs with NCCL_PROTO",
        "NVIDIA H100, 4 GPUs, NCCL_PROTO=LL",
    ),
    variants=variants,
    clues=clues,
    settings=frozenset({"NCCL_PROTO", "NCCL_ALGO"}),
)
