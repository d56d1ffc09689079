"""MPICH over TCP: which algorithm it takes for which operation, size and number of ranks.

The switch points are those of the selection table compiled into MPICH 5.0.2 (the JSON after
"collective=" in libmpi.so of the PyPI package mpich 5.0.2; its source is maint/tuning/coll in
github.com/pmodels/mpich), and the messages and bytes that 5.0.2 sent on 4 and 8 ranks, counted at
the socket, agree. Before 5.0 all_reduce switches at 2 KiB (MPIR_CVAR_ALLREDUCE_SHORT_MSG_SIZE,
README.envvar; Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, 10.1177/1094342005051521). With
several ranks on several machines all_reduce, reduce, barrier and all but long broadcasts go in two
levels, shared memory and network (MPIDI_*_intra_composition_alpha, _beta); on one machine
all_reduce goes through shared memory alone (MPIDI_Allreduce_intra_composition_gamma,
release_gather).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from commsim.collectives.collective import Collective
from commsim.errors import LibraryError
from commsim.libraries.host import HostFacts, pick, placement_of, ring_crossings, settings
from commsim.libraries.library import Choice, Library
from commsim.topology.cluster import Cluster
from commsim.topology.placement import Placement
from commsim.units import Bytes

BROADCAST_SHORT = 12288  # avg_msg_size<=12288; MPIR_CVAR_BCAST_SHORT_MSG_SIZE
BROADCAST_LONG = 524288  # avg_msg_size<=524288; MPIR_CVAR_BCAST_LONG_MSG_SIZE
BROADCAST_MIN_RANKS = 8  # comm_size<8; MPIR_CVAR_BCAST_MIN_PROCS
ALL_REDUCE_SHORT = 8  # avg_msg_size<=8, from 5.0
ALL_REDUCE_SHORT_BEFORE_5 = 2048  # MPIR_CVAR_ALLREDUCE_SHORT_MSG_SIZE
REDUCE_SHORT = 2048  # avg_msg_size<=2048; MPIR_CVAR_REDUCE_SHORT_MSG_SIZE
ALL_GATHER_SHORT = 81920  # total_msg_size<81920; MPIR_CVAR_ALLGATHER_SHORT_MSG_SIZE
ALL_GATHER_LONG = 524288  # total_msg_size<524288; MPIR_CVAR_ALLGATHER_LONG_MSG_SIZE
REDUCE_SCATTER_LONG = 524288  # total_msg_size<524288; MPIR_CVAR_REDSCAT_COMMUTATIVE_LONG_MSG_SIZE
ALL_TO_ALL_SHORT = 256  # avg_msg_size<=256 a peer; MPIR_CVAR_ALLTOALL_SHORT_MSG_SIZE
ALL_TO_ALL_MEDIUM = 32768  # avg_msg_size<=32768 a peer; MPIR_CVAR_ALLTOALL_MEDIUM_MSG_SIZE
ALL_TO_ALL_MIN_RANKS = 8  # comm_size<8

CANDIDATES = {
    "all_reduce": ("recursive_doubling", "rabenseifner", "release_gather"),
    "broadcast": ("binomial", "scatter_doubling", "scatter_ring"),
    "reduce": ("binomial", "rabenseifner"),
    "all_gather": ("recursive_doubling", "bruck", "ring"),
    "reduce_scatter": ("recursive_halving", "pairwise"),
    "all_to_all": ("bruck", "scattered", "pairwise"),
    "gather": ("binomial",),
    "scatter": ("binomial",),
    "barrier": ("dissemination",),
    "send_recv": ("p2p",),
}  # fmt: skip

# MPICH's names for the values of MPIR_CVAR_<operation>_INTRA_ALGORITHM
VARIABLES = {
    "all_reduce": "ALLREDUCE", "broadcast": "BCAST", "reduce": "REDUCE",
    "all_gather": "ALLGATHER", "all_to_all": "ALLTOALL", "reduce_scatter": "REDUCE_SCATTER_BLOCK",
}  # fmt: skip
THEIR_NAMES = {
    "reduce_scatter_allgather": "rabenseifner", "reduce_scatter_gather": "rabenseifner",
    "scatter_recursive_doubling_allgather": "scatter_doubling",
    "scatter_ring_allgather": "scatter_ring", "brucks": "bruck",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Mpi(Library):
    """MPICH, `version` as "mpich@5.0.2", over libfabric's tcp provider. Of env,
    MPIR_CVAR_<operation>_INTRA_ALGORITHM forces an algorithm, MPIR_CVAR_NOLOCAL=1 turns shared
    memory off, and FI_TCP_IFACE names the interface."""

    version: str = "mpich@5.0.2"
    env: Mapping[str, str] | tuple[tuple[str, str], ...] | None = None
    launch: str = "processes"
    name: str = "mpi"

    def __post_init__(self) -> None:
        object.__setattr__(self, "env", settings(self.env))
        if self.launch != "processes":
            raise LibraryError(
                f'mpi: launch: expected "processes", got {self.launch!r}; leave it out'
            )
        _release(self.version)

    def choose(self, collective: Collective, cluster: Cluster) -> Choice:
        """The algorithm of MPICH's selection table for this operation, size and group."""
        env = dict(settings(self.env))
        at = placement_of(collective, cluster)
        shared = env.get("MPIR_CVAR_NOLOCAL", "0") in ("", "0") and at.max_per_host > 1
        two_level = shared and at.hosts > 1 and leads(collective.operation, collective.nbytes, at.n)
        n = at.hosts if two_level else at.n
        chosen, why = select(
            collective.operation, collective.nbytes, collective.itemsize, n,
            shared and at.hosts == 1, _release(self.version),
        )  # fmt: skip
        names = {name: _ruled_out(name, at, shared) for name in CANDIDATES[collective.operation]}
        forced = _forced(collective.operation, env, names)
        if forced:
            chosen, why = forced, "the environment forces it"
        if two_level:
            why += f"; between the leaders of {at.hosts} machines, shared memory inside them"
        facts = HostFacts(
            placement=at,
            library="mpi",
            crossings=ring_crossings(cluster, collective.ranks),
            shared_memory=shared,
            two_level=two_level,
        )
        return pick(names, chosen, why, facts)


@lru_cache(maxsize=64)
def _release(version: str) -> int:
    """The major version of "mpich@5.0.2" or "5.0.2"."""
    name, _, number = version.rpartition("@")
    major = number.split(".")[0]
    if name not in ("", "mpich") or not major.isdigit():
        raise LibraryError(f'mpi: version: expected MPICH such as "mpich@5.0.2", got {version!r}')
    return int(major)


def _ruled_out(name: str, at: Placement, shared: bool) -> str:
    """Why this algorithm cannot run here, "" where it can."""
    if name == "release_gather" and at.hosts > 1:
        return "runs inside one machine"
    if name == "release_gather" and not shared:
        return "MPIR_CVAR_NOLOCAL turns shared memory off"
    return ""


def _forced(operation: str, env: Mapping[str, str], names: Mapping[str, str]) -> str:
    """The algorithm that MPIR_CVAR_<operation>_INTRA_ALGORITHM asks for, "" where it asks for
    none."""
    variable = f"MPIR_CVAR_{VARIABLES.get(operation, '')}_INTRA_ALGORITHM"
    asked = env.get(variable, "auto").lower()
    if asked == "auto":
        return ""
    name = THEIR_NAMES.get(asked, asked)
    if names.get(name, "unknown"):
        usable = ", ".join(n for n, reason in names.items() if not reason)
        raise LibraryError(
            f"{variable}: {asked!r} is not modelled here; use auto or one of {usable}"
        )
    return name


def leads(operation: str, nbytes: Bytes, n: int) -> bool:
    """Whether machines of several ranks each send one leader into the network phase."""
    if operation != "broadcast":
        return operation in ("all_reduce", "reduce", "barrier")
    two = n & (n - 1) == 0
    return n < BROADCAST_MIN_RANKS or nbytes < (BROADCAST_LONG if two else BROADCAST_SHORT)


def select(
    operation: str, nbytes: Bytes, itemsize: Bytes, n: int, inside: bool, release: int
) -> tuple[str, str]:
    """MPICH's algorithm and why. inside: the whole group shares one machine's memory."""
    power = 1 << (n.bit_length() - 1)
    two = power == n
    if inside and operation == "all_reduce":
        return "release_gather", "one machine: through shared memory"
    match operation:
        case "all_reduce":
            short = ALL_REDUCE_SHORT if release >= 5 else ALL_REDUCE_SHORT_BEFORE_5
            if nbytes <= short:
                return "recursive_doubling", f"at most {short} bytes"
            if nbytes // itemsize < power:
                return "recursive_doubling", f"fewer elements than {power} ranks"
            return "rabenseifner", f"more than {short} bytes"
        case "broadcast":
            if n < BROADCAST_MIN_RANKS:
                return "binomial", f"fewer than {BROADCAST_MIN_RANKS} ranks"
            if nbytes <= BROADCAST_SHORT:
                return "binomial", f"at most {BROADCAST_SHORT} bytes"
            if two and nbytes <= BROADCAST_LONG:
                return "scatter_doubling", f"2^k ranks, at most {BROADCAST_LONG} bytes"
            return "scatter_ring", "long, or ranks no power of two"
        case "reduce":
            if nbytes <= REDUCE_SHORT:
                return "binomial", f"at most {REDUCE_SHORT} bytes"
            if nbytes // itemsize < power:
                return "binomial", f"fewer elements than {power} ranks"
            return "rabenseifner", f"more than {REDUCE_SHORT} bytes"
        case "all_gather":
            if two and nbytes < ALL_GATHER_LONG:
                return "recursive_doubling", f"2^k ranks, under {ALL_GATHER_LONG} bytes in all"
            if not two and nbytes < ALL_GATHER_SHORT:
                return "bruck", f"ranks no power of two, under {ALL_GATHER_SHORT} bytes in all"
            return "ring", "long"
        case "reduce_scatter":
            if nbytes < REDUCE_SCATTER_LONG:
                return "recursive_halving", f"under {REDUCE_SCATTER_LONG} bytes in all"
            return "pairwise", f"at least {REDUCE_SCATTER_LONG} bytes in all"
        case "all_to_all":
            if nbytes // n <= ALL_TO_ALL_SHORT and n >= ALL_TO_ALL_MIN_RANKS:
                return "bruck", f"at most {ALL_TO_ALL_SHORT} bytes a peer"
            if nbytes // n <= ALL_TO_ALL_MEDIUM:
                return "scattered", f"at most {ALL_TO_ALL_MEDIUM} bytes a peer: all posted at once"
            return "pairwise", f"more than {ALL_TO_ALL_MEDIUM} bytes a peer"
        case "gather" | "scatter":
            return "binomial", "the only algorithm in the table"
        case "barrier":
            return "dissemination", "the only algorithm in the table"
        case _:
            return "p2p", "one message between two ranks"
