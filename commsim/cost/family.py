"""GPU families: whose constants apply, their clocks, and the hosts of their time."""

from __future__ import annotations

from typing import Final

from commsim.topology.cluster import Cluster

GENERATIONS: Final = {
    70: "volta", 72: "volta", 75: "turing", 80: "ampere", 86: "ampere-pcie", 87: "ampere-pcie",
    89: "ada", 90: "hopper", 100: "blackwell", 103: "blackwell", 120: "blackwell-pcie",
}  # fmt: skip
_AMD: Final = (("MI2", "cdna2"), ("MI30", "cdna3"), ("MI32", "cdna3"), ("MI35", "cdna4"))

BOOST_GHZ: Final = {
    "volta": 1.53, "turing": 1.59, "ampere": 1.41, "ampere-pcie": 1.70, "ada": 2.52, "hopper": 1.98,
    "blackwell": 1.97, "blackwell-pcie": 2.41, "cdna2": 1.70, "cdna3": 2.10, "cdna4": 2.40,
}  # fmt: skip
"""Boost clock of the family's usual member: NVIDIA's architecture whitepapers and AMD's data
sheets."""
TYPICAL_GHZ: Final = 1.9

YEAR: Final = {
    "volta": 2017, "turing": 2018, "ampere": 2020, "ampere-pcie": 2020, "ada": 2022, "hopper": 2022,
    "blackwell": 2024, "blackwell-pcie": 2025, "cdna2": 2021, "cdna3": 2023, "cdna4": 2025,
}  # fmt: skip
"""In which a family was announced: vendors' press releases."""
TYPICAL_YEAR: Final = 2022
THREAD_GROWTH: Final = 1.06
"""What a CPU's single thread gains a year: 5 to 7 % since 2012 (K. Rupp, "48 years of
microprocessor trend data", github.com/karlrupp/microprocessor-trend-data)."""


def generation(cluster: Cluster) -> str:
    """The GPU family whose constants apply."""
    gpu = cluster.node.gpus[0]
    if gpu.capability:
        return GENERATIONS.get(gpu.capability, "unknown")
    name = gpu.part.upper()
    return next((family for prefix, family in _AMD if name.startswith(prefix)), "unknown")


def clock(family: str) -> float:
    """Cycles of a family's GPU in time, against the typical one: 1.9 GHz over its boost clock."""
    return TYPICAL_GHZ / BOOST_GHZ.get(family, TYPICAL_GHZ)


def host(family: str) -> float:
    """Time that a host's thread needs, against one of 2022: machines of a GPU family come with the
    CPUs of its year, and the proxy thread that drives the network runs on them."""
    return float(THREAD_GROWTH ** (TYPICAL_YEAR - YEAR.get(family, TYPICAL_YEAR)))
