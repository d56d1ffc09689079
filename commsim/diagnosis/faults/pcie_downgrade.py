"""PCIe links of NICs or GPUs at a lower generation or width than they should have."""

from __future__ import annotations

from collections.abc import Iterator

from commsim.diagnosis.alter import cards_at, links_at
from commsim.diagnosis.evidence import Clue, Evidence
from commsim.diagnosis.fault import Fault, Setup, Variant
from commsim.units import format_rate

HALVINGS = ((2, 0.4), (4, 0.25), (8, 0.2), (16, 0.15))
"""Gen5 x16 as gen4 x16 or gen5 x8, ... as gen5 x1 or gen1 x16, and how often."""
PCIE = frozenset({"pcie"})


def variants(setup: Setup) -> Iterator[Variant]:
    """Every PCIe link, or those of the NICs, at 1/2 ... 1/16 of their bandwidth."""
    cluster = setup.cluster
    for divisor, share in HALVINGS:
        if setup.networked:
            yield Variant(
                detail=f"PCIe of the NICs at 1/{divisor}", share=share / 2,
                cluster=cards_at(cluster, 1 / divisor),
                library=setup.library, profile=setup.profile,
            )  # fmt: skip
        yield Variant(
            detail=f"all PCIe links at 1/{divisor}", share=share / (2 if setup.networked else 1),
            cluster=links_at(cluster, PCIE, 1 / divisor),
            library=setup.library, profile=setup.profile,
        )  # fmt: skip


def clues(evidence: Evidence, setup: Setup) -> Iterator[Clue]:
    """A machine that NCCL could not read; links of the topology that are slower than expected."""
    yield from evidence.told("topology")
    if evidence.node is None:
        return
    shown = [k for k in evidence.node.links if k.kind == "pcie" and k.speed]
    expected = [k for k in setup.cluster.node.links if k.kind == "pcie"]
    if shown and expected:
        worst = min(shown, key=lambda k: k.bandwidth)
        least = min(k.bandwidth for k in expected)
        if worst.bandwidth < 0.75 * least:
            yield Clue(
                text=f"topology: the PCIe link of {worst.source} has "
                f"{format_rate(worst.bandwidth)}, {format_rate(least)} expected"
            )


FAULT = Fault(
    cause="pcie_downgrade",
    what="PCIe links run at a lower generation or width, or NCCL takes them for such",
    check="lspci -vv: LnkSta against LnkCap of GPUs and NICs ('downgraded'); nvidia-smi -q -d "
    "PCIE under load; 'Could not find' in NCCL_DEBUG=INFO",
    fix="reseat card or riser, set the generation in the BIOS, update firmware; where NCCL "
    "misreads the speed, update NCCL or give NCCL_TOPO_FILE",
    incidents=("NVIDIA/nccl issue 837",),
    variants=variants,
    clues=clues,
)
