"""What the cost model needs to know about how NCCL (or RCCL) laid a communicator."""

from __future__ import annotations

from dataclasses import dataclass

from commsim.libraries.nccl.graph import Communicator
from commsim.topology.placement import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclFacts:
    """The group, NCCL's searched communicator, and the version and settings in force.

    version: the modelled version (clamped to the range modelled). launch: processes, threads or
    single. env: the settings in force, the network plugin's own among them.
    """

    placement: Placement
    communicator: Communicator
    version: tuple[int, int, int]
    launch: str
    env: tuple[tuple[str, str], ...]
