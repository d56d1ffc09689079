"""PCIe Access Control Services or a translating IOMMU between GPU and NIC.

ACS sends what a GPU and a NIC exchange up to the root complex and back instead of through the
switch above both (NVIDIA, NCCL user guide, "PCI Access Control Services"; PCIe base specification,
6.12). NCCL sees the same machine and chooses the same; each NIC gets what a root complex passes
on between two devices, a fraction of the PCIe link.
"""

from __future__ import annotations

from collections.abc import Iterator

from commsim.diagnosis.alter import card_bandwidth, nics_capped
from commsim.diagnosis.fault import Fault, Setup, Variant

SHARES = ((0.15, 0.1), (0.2, 0.25), (0.25, 0.25), (0.3, 0.15), (0.4, 0.15), (0.5, 0.1))
"""Share of a NIC's PCIe link, and how often. Reported: 13.1 GB/s of 63 through one NIC (NCCL issue
2409, send_recv), 14.4 GB/s through two NICs of 31.5 each (NCCL issue 949)."""


def variants(setup: Setup) -> Iterator[Variant]:
    """Every NIC capped at a share of its PCIe link, unseen by the library."""
    cluster = setup.cluster
    if not setup.networked or not any(nic.gpudirect for nic in cluster.node.nics):
        return
    link = card_bandwidth(cluster)
    for part, share in SHARES:
        yield Variant(
            detail=f"each NIC gets {part:.0%} of its PCIe link through the root complex",
            share=share, cluster=nics_capped(cluster, part * link), seen=cluster,
            library=setup.library, profile=setup.profile,
        )  # fmt: skip


FAULT = Fault(
    cause="acs_on",
    what="PCIe ACS or a translating IOMMU sends GPU-NIC traffic through the root complex",
    check="lspci -vvv | grep ACSCtl (SrcValid+ is on); grep iommu /proc/cmdline; ib_write_bw "
    "with --use_cuda against the same without",
    fix="clear ACS on every PCIe bridge (setpci -s BRIDGE ECAP_ACS+0x6.w=0000, or in the BIOS); "
    "boot with iommu=pt or the IOMMU off; in a virtual machine enable ATS",
    incidents=(
        "NVIDIA/nccl issue 2409",
        "NVIDIA/nccl issue 949",
    ),
    variants=variants,
)
