"""Gloo as torch.distributed drives it: TCP between processes, one algorithm per operation.

torch's process group asks Gloo for the "new style" collectives, whose algorithm no size and no
environment variable changes: all_reduce as a ring (allreduce.cc's default), all_gather as a ring,
reduce as ring reduce-scatter and gather, broadcast over a binomial tree, gather, scatter and
all_to_all straight between the ranks, barrier by dissemination (github.com/pytorch/gloo,
gloo/*.cc); reduce_scatter is an all_reduce of which each rank keeps its part (torch,
ProcessGroupGloo.cpp). Bytes per interface counted on real runs of torch 2.13 agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from commsim.collectives.collective import Collective
from commsim.errors import LibraryError
from commsim.libraries.host import HostFacts, pick, placement_of, ring_crossings, settings
from commsim.libraries.library import Choice, Library
from commsim.topology.cluster import Cluster
from commsim.units import MIB

MAX_SEGMENT = 1 * MIB  # kMaxSegmentSize, gloo/allreduce.h

# operation: its algorithm and why
ALGORITHMS = {
    "all_reduce": ("ring", "the default of Gloo's allreduce, at every size"),
    "reduce_scatter": ("ring_then_slice", "torch runs an all_reduce and keeps each rank's part"),
    "reduce": ("ring_then_gather", "ring reduce-scatter, then the parts go to the root"),
    "all_gather": ("ring", "the only algorithm of Gloo's allgather"),
    "broadcast": ("flooded_binomial", "binomial tree; a rank sends to all its children at once"),
    "all_to_all": ("linear", "every pair is posted at once"),
    "gather": ("linear", "every rank sends to the root"),
    "scatter": ("linear", "the root sends to every rank"),
    "barrier": ("dissemination", "the only algorithm of Gloo's barrier"),
    "send_recv": ("p2p", "one message between two ranks"),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Gloo(Library):
    """Gloo of torch `version`. Of env, GLOO_SOCKET_IFNAME counts: a list of k interfaces uses k
    ports of a machine."""

    version: str = "2.13.0"
    env: Mapping[str, str] | tuple[tuple[str, str], ...] | None = None
    launch: str = "processes"
    name: str = "gloo"

    def __post_init__(self) -> None:
        object.__setattr__(self, "env", settings(self.env))
        if self.launch != "processes":
            raise LibraryError(
                f'gloo: launch: expected "processes", got {self.launch!r}; leave it out'
            )

    @property
    def interfaces(self) -> int:
        """Network interfaces in use: GLOO_SOCKET_IFNAME's list, else the one of the host's name."""
        names = dict(settings(self.env)).get("GLOO_SOCKET_IFNAME", "")
        return max(1, len([name for name in names.split(",") if name.strip()]))

    def choose(self, collective: Collective, cluster: Cluster) -> Choice:
        """The one algorithm that torch uses; those Gloo has beside it are listed as ruled out."""
        chosen, why = ALGORITHMS[collective.operation]
        names = {chosen: ""}
        if collective.operation == "all_reduce":
            unused = "in Gloo, but torch's process group does not ask for it"
            names |= {"bcube": unused, "halving_doubling": unused}
        facts = HostFacts(
            placement=placement_of(collective, cluster),
            library="gloo",
            interfaces=self.interfaces,
            crossings=ring_crossings(cluster, collective.ranks),
            segment=MAX_SEGMENT,
        )
        return pick(names, chosen, why, facts)
