"""Messages and bytes that each algorithm of a host-based library moves, and past which points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from commsim.cost.host_halving import (
    bruck_all_gather,
    bruck_all_to_all,
    pairwise,
    pairwise_reduce_scatter,
    rabenseifner,
    rabenseifner_reduce,
    recursive_doubling_all_gather,
    recursive_doubling_all_reduce,
    recursive_halving,
    scatter_doubling,
    scatter_ring,
)
from commsim.cost.host_layout import Layout, Traffic
from commsim.cost.host_rings import (
    dissemination,
    linear_all_to_all,
    linear_root,
    p2p,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce,
    ring_slice,
)
from commsim.cost.host_trees import (
    binomial,
    binomial_parts,
    binomial_reduce,
    flooded_binomial,
    release_gather,
    release_gather_all_reduce,
    release_gather_barrier,
    release_gather_reduce,
)
from commsim.errors import LibraryError

__all__ = ["COUNTS", "Layout", "Traffic", "traffic"]

Count = Callable[[Layout, float], Traffic]
COUNTS: dict[tuple[str, str], Count] = {
    ("ring", "all_reduce"): ring_all_reduce,
    ("ring", "all_gather"): ring_all_gather,
    ("ring_then_slice", "reduce_scatter"): ring_slice,
    ("ring_then_gather", "reduce"): ring_reduce,
    ("linear", "all_to_all"): linear_all_to_all,
    ("scattered", "all_to_all"): linear_all_to_all,
    ("linear", "gather"): linear_root,
    ("linear", "scatter"): linear_root,
    ("flooded_binomial", "broadcast"): flooded_binomial,
    ("dissemination", "barrier"): dissemination,
    ("p2p", "send_recv"): p2p,
    ("binomial", "broadcast"): binomial,
    ("binomial", "reduce"): binomial_reduce,
    ("binomial", "gather"): binomial_parts,
    ("binomial", "scatter"): binomial_parts,
    ("recursive_doubling", "all_reduce"): recursive_doubling_all_reduce,
    ("recursive_doubling", "all_gather"): recursive_doubling_all_gather,
    ("rabenseifner", "all_reduce"): rabenseifner,
    ("rabenseifner", "reduce"): rabenseifner_reduce,
    ("bruck", "all_gather"): bruck_all_gather,
    ("bruck", "all_to_all"): bruck_all_to_all,
    ("recursive_halving", "reduce_scatter"): recursive_halving,
    ("pairwise", "reduce_scatter"): pairwise_reduce_scatter,
    ("pairwise", "all_to_all"): pairwise,
    ("scatter_doubling", "broadcast"): scatter_doubling,
    ("scatter_ring", "broadcast"): scatter_ring,
    ("release_gather", "broadcast"): release_gather,
    ("release_gather", "reduce"): release_gather_reduce,
    ("release_gather", "all_reduce"): release_gather_all_reduce,
    ("release_gather", "barrier"): release_gather_barrier,
}  # fmt: skip


def traffic(algorithm: str, operation: str, size: float, at: Layout) -> Traffic:
    """What `algorithm` moves for `operation` on `size` bytes. Raises LibraryError for a pair it
    does not know."""
    count = COUNTS.get((algorithm, operation))
    if count is None:
        known = sorted(a for a, o in COUNTS if o == operation)
        raise LibraryError(
            f"{operation}: unknown algorithm {algorithm!r} of a host-based library; "
            f"use one of {', '.join(known)}"
        )
    found = count(at, size)
    if at.hosts == 1 or at.hosts == at.n:
        return replace(found, own=found.node, copiers=found.copiers or at.n)
    alone = replace(at, hosts=at.n, per_host=1, near=1, crossings=1)
    return replace(found, own=count(alone, size).node, copiers=found.copiers or at.hosts)
