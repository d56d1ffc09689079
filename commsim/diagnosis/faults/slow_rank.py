"""One rank is slow or late: a throttled GPU, a busy CPU core; all wait for it."""

from __future__ import annotations

from collections.abc import Iterator

from commsim.diagnosis.fault import Fault, Setup, Variant

DELAYS = ((20e-6, 0.1), (50e-6, 0.1), (150e-6, 0.1), (500e-6, 0.1), (2e-3, 0.1))
"""s that one rank comes late to every call, and how often."""
CLOCKS = ((1.3, 0.2), (1.8, 0.2), (3.0, 0.1))
"""How many times as long everything takes that a GPU does itself."""


def variants(setup: Setup) -> Iterator[Variant]:
    """Late by the same time at every size, or slow at everything a GPU does."""
    for delay, share in DELAYS:
        yield Variant(
            detail=f"a rank comes {delay * 1e6:g} us late to every call", share=share,
            cluster=setup.cluster, library=setup.library, profile=setup.profile, delay=delay,
        )  # fmt: skip
    for factor, share in CLOCKS:
        yield Variant(
            detail=f"a GPU takes {factor:g} times as long", share=share, cluster=setup.cluster,
            library=setup.library, profile=setup.profile,
            launch=factor, hops=factor, transfer=factor,
        )  # fmt: skip


FAULT = Fault(
    cause="slow_rank",
    what="one rank is slow or late and all others wait",
    check="nvidia-smi -q -d CLOCK,PERFORMANCE under load (throttle reasons); load of the CPU "
    "cores; the same GEMM on every GPU; per-rank times of the calls before the collective",
    fix="power and cooling, persistence mode, no other process on the GPU, one core for each "
    "rank and its proxy thread; take the GPU out",
    variants=variants,
)
