"""What NCCL's environment variables ask for, read as the given release reads them.

NCCL_ALGO and NCCL_PROTO have two grammars: one list for everything up to 2.23, lists per function
from 2.24, where an unknown word is an error (NCCL user guide, environment variables;
src/graph/tuning.cc).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

from commsim.errors import LibraryError
from commsim.libraries.nccl.constants import ALGORITHMS, PROTOCOLS, Version

Environment: TypeAlias = tuple[tuple[str, str], ...]

FUNCTIONS: Final = ("broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce")
_FUNCTION_WORDS: Final = {f.replace("_", ""): f for f in FUNCTIONS}
_ALGORITHM_WORDS: Final = {a.replace("_", ""): a for a in ALGORITHMS}
_PROTOCOL_WORDS: Final = {p.lower(): p for p in PROTOCOLS}
OFF, ON, AUTOMATIC = range(3)

# Variables that this package acts on, here or in the search of channels; any other NCCL_ variable
# gets a note.
MODELLED: Final = frozenset(
    "NCCL_" + word
    for word in (
        "ALGO", "PROTO", "NTHREADS", "LL128_NTHREADS", "THREAD_THRESHOLDS", "NET_OVERHEAD",
        "LL128_C2C", "PAT_ENABLE", "COLLNET_ENABLE", "COLLNET_NODE_THRESHOLD", "NVLS_ENABLE",
        "NVLS_NCHANNELS", "NVLS_CHUNKSIZE", "NVLSTREE_MAX_CHUNKSIZE", "BUFFSIZE", "LL_BUFFSIZE",
        "LL128_BUFFSIZE", "P2P_NET_CHUNKSIZE", "P2P_PCI_CHUNKSIZE", "P2P_NVL_CHUNKSIZE",
        "P2P_LL_THRESHOLD", "ALLOC_P2P_NET_LL_BUFFERS", "NCHANNELS_PER_NET_PEER",
        "MIN_P2P_NCHANNELS", "MAX_P2P_NCHANNELS", "MIN_NCHANNELS", "MAX_NCHANNELS", "MIN_NRINGS",
        "MAX_NRINGS", "MIN_CTAS", "MAX_CTAS", "P2P_DISABLE", "P2P_LEVEL", "SHM_DISABLE",
        "CROSS_NIC", "NET_GDR_LEVEL", "NET_GDR_READ", "NET_GDR_C2C", "NET_DISABLE_INTRA", "IB_HCA",
        "PXN_DISABLE", "PXN_C2C", "NVB_DISABLE", "SOCKET_NTHREADS",
        "DEBUG", "DEBUG_SUBSYS", "DEBUG_FILE",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The variables as values. algorithms, protocols: per function (order of FUNCTIONS) and per
    algorithm or protocol OFF, ON or AUTOMATIC (LL128 where NCCL deems it safe). None: not set,
    NCCL's own default holds. notes: what NCCL would ignore."""

    algorithms: tuple[tuple[int, ...], ...]
    protocols: tuple[tuple[int, ...], ...]
    algorithm_text: str | None = None
    protocol_text: str | None = None
    threads: int | None = None
    ll128_threads: int | None = None
    thread_thresholds: tuple[int, ...] | None = None
    net_overhead_us: float | None = None
    ll128_c2c: bool = True
    pat: int = 2
    collnet: bool = False
    collnet_nodes: int = 2
    nvls: int = 2
    nvls_chunk: int | None = None
    nvls_tree_chunk: int | None = None
    buffers: tuple[int | None, int | None, int | None] = (None, None, None)
    p2p_net_chunk: int = 128 << 10
    p2p_pci_chunk: int = 128 << 10
    p2p_nvlink_chunk: int = 512 << 10
    p2p_ll_threshold: int = 16 << 10
    p2p_net_ll: bool = False
    notes: tuple[str, ...] = field(default=())

    def algorithm_state(self, operation: str, algorithm: str) -> int:
        return self.algorithms[FUNCTIONS.index(operation)][ALGORITHMS.index(algorithm)]

    def protocol_state(self, operation: str, protocol: str) -> int:
        return self.protocols[FUNCTIONS.index(operation)][PROTOCOLS.index(protocol)]


def freeze(env: Mapping[str, str] | Environment | None) -> Environment:
    """Variables sorted by name, hashable."""
    pairs = env.items() if isinstance(env, Mapping) else env or ()
    return tuple(sorted((str(key), str(value)) for key, value in pairs))


@lru_cache(maxsize=256)
def read(env: Environment, version: Version) -> Settings:
    """The settings in force. Raises LibraryError where NCCL itself would refuse."""
    values, notes = dict(env), []

    def integer(name: str) -> int | None:
        text = values.get(name)
        if text is None:
            return None
        try:
            return int(text.strip(), 0)
        except ValueError:
            notes.append(f"{name}={text!r} is not a whole number; NCCL ignores it")
            return None

    def given(name: str, default: int) -> int:
        value = integer(name)
        return default if value is None else value

    thresholds = None
    if (text := values.get("NCCL_THREAD_THRESHOLDS")) is not None:
        words = text.replace(",", " ").split()
        if len(words) == 6 and all(w.isdecimal() for w in words):
            thresholds = tuple(int(w) for w in words)
        else:
            notes.append(
                f"NCCL_THREAD_THRESHOLDS={text!r} is not six whole numbers; NCCL ignores it"
            )
    overhead = integer("NCCL_NET_OVERHEAD")
    unknown = sorted(k for k in values if k.startswith("NCCL_") and k not in MODELLED)
    if unknown:
        notes.append(f"set but without effect in this model: {', '.join(unknown)}")
    algorithms, protocols = values.get("NCCL_ALGO"), values.get("NCCL_PROTO")
    old_words = dict(_ALGORITHM_WORDS)
    if version < (2, 23, 0):
        del old_words["pat"]
    return Settings(
        algorithms=_states("NCCL_ALGO", algorithms, old_words, ALGORITHMS, (ON,) * 7, version),
        protocols=_states(
            "NCCL_PROTO", protocols, _PROTOCOL_WORDS, PROTOCOLS, (ON, AUTOMATIC, ON), version
        ),
        algorithm_text=algorithms,
        protocol_text=protocols,
        threads=integer("NCCL_NTHREADS"),
        ll128_threads=integer("NCCL_LL128_NTHREADS"),
        thread_thresholds=thresholds,
        net_overhead_us=None if overhead is None or overhead == -2 else overhead / 1000,
        ll128_c2c=given("NCCL_LL128_C2C", 1) != 0,
        pat=given("NCCL_PAT_ENABLE", 2),
        collnet=given("NCCL_COLLNET_ENABLE", 0) != 0,
        collnet_nodes=given("NCCL_COLLNET_NODE_THRESHOLD", 2),
        nvls=given("NCCL_NVLS_ENABLE", 2),
        nvls_chunk=integer("NCCL_NVLS_CHUNKSIZE"),
        nvls_tree_chunk=integer("NCCL_NVLSTREE_MAX_CHUNKSIZE"),
        buffers=(
            integer("NCCL_LL_BUFFSIZE"), integer("NCCL_LL128_BUFFSIZE"), integer("NCCL_BUFFSIZE"),
        ),
        p2p_net_chunk=given("NCCL_P2P_NET_CHUNKSIZE", 128 << 10),
        p2p_pci_chunk=given("NCCL_P2P_PCI_CHUNKSIZE", 128 << 10),
        p2p_nvlink_chunk=given("NCCL_P2P_NVL_CHUNKSIZE", 512 << 10),
        p2p_ll_threshold=given("NCCL_P2P_LL_THRESHOLD", 16 << 10),
        p2p_net_ll=given("NCCL_ALLOC_P2P_NET_LL_BUFFERS", 0) != 0,
        notes=tuple(notes),
    )  # fmt: skip


def _states(
    variable: str,
    text: str | None,
    words: Mapping[str, str],
    order: tuple[str, ...],
    default: tuple[int, ...],
    version: Version,
) -> tuple[tuple[int, ...], ...]:
    """Per function and per entry of `order` what the list says."""
    if text is None:
        return (default,) * len(FUNCTIONS)
    if version < (2, 24, 0):
        exclude = text.startswith("^")
        named = {words.get(w.lower()) for w in text.removeprefix("^").split(",")}
        return (tuple(int((name in named) != exclude) for name in order),) * len(FUNCTIONS)
    states = dict.fromkeys(FUNCTIONS, default)
    for place, entry in enumerate(e for e in text.split(";") if e):
        prefix, colon, listed = entry.partition(":")
        if not colon:
            prefix, listed = "", entry
            if place:
                raise LibraryError(
                    f"{variable}={text}: entry {entry!r} has no function; only the first may "
                    f"lack one, write e.g. allreduce:{entry}"
                )
        function = _FUNCTION_WORDS.get(prefix.lower())
        if prefix and function is None:
            raise LibraryError(
                f"{variable}={text}: unknown function {prefix!r}; expected one of "
                f"{', '.join(_FUNCTION_WORDS)}"
            )
        exclude, named = listed.startswith("^"), set()
        for word in listed.removeprefix("^").split(","):
            if word and word.lower() not in words:
                raise LibraryError(
                    f"{variable}={text}: unknown word {word!r} (NCCL {version[0]}.{version[1]} "
                    f"refuses it); expected one of {', '.join(words)}"
                )
            named.add(words.get(word.lower()))
        row = tuple(int((name in named) != exclude) for name in order)
        for target in (function,) if function else FUNCTIONS:
            states[target] = row
    return tuple(states[f] for f in FUNCTIONS)
