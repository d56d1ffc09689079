"""What an operation of a script costs on the cluster, in s: `predict`, asked once for each kind."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from commsim.collectives.collective import DTYPES, REDUCE_OPS, Collective
from commsim.cost.profile import Profile
from commsim.libraries.library import Library
from commsim.prediction import Prediction, predict
from commsim.topology.cluster import Cluster
from commsim.torch_backend.footprint import NOTHING, Footprint, Footprints, together
from commsim.torch_backend.records import Call
from commsim.units import Bytes, Seconds

Ranks = tuple[int, ...]
Splits = tuple[tuple[Bytes, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Which GPU of the cluster each rank of the script drives: torchrun's order."""

    cluster: Cluster
    nproc_per_node: int

    def device(self, rank: int) -> int:
        """The cluster's own number of the rank's GPU."""
        node, local = divmod(rank, self.nproc_per_node)
        return node * self.cluster.gpus_per_node + local


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Durations by prediction, remembered: equal questions get equal answers.

    A duration is what an operation takes with the network to itself; a footprint says what it takes
    of the network meanwhile.
    """

    places: Places
    library: Library
    footprints: Footprints
    profile: Profile | None = None
    known: dict[Hashable, Prediction] = field(default_factory=dict)

    def of_collective(self, call: Call, splits: Splits | None = None) -> Prediction | None:
        """A collective by all ranks of the call's group; None for a group of one."""
        return None if len(call.group.ranks) < 2 else self._on(call, call.group.ranks, splits)

    def _on(self, call: Call, ranks: Ranks, splits: Splits | None) -> Prediction:
        """What the call asks for, by a group of ranks that lie as its own do."""
        shift = ranks[0] - call.group.ranks[0]
        key = (
            call.operation, call.nbytes, call.dtype, ranks, call.root, call.reduce_op, splits,
        )  # fmt: skip
        if key not in self.known:
            devices = tuple(map(self.places.device, ranks))
            root = None if call.root is None else self.places.device(call.root + shift)
            self.known[key] = self._ask(_collective(call, devices, root, splits))
        return self.known[key]

    def footprint_of_collective(
        self, call: Call, splits: Splits | None, sisters: Sequence[Ranks]
    ) -> Footprint:
        """Of the call's collective and the same by other groups, which are like its own."""
        groups = (call.group.ranks, *sisters)
        return together(
            self.footprints.of(self._on(call, ranks, splits)) for ranks in groups
        )  # fmt: skip

    def of_message(self, source: int, destination: int, nbytes: Bytes, dtype: str) -> Seconds:
        """s of one message; to itself it takes none."""
        if source == destination:
            return 0.0
        a, b = self.places.device(source), self.places.device(destination)
        per_node = self.places.cluster.gpus_per_node
        if a // per_node == b // per_node:  # machines are alike: ask about the first
            a, b = a % per_node, b % per_node
        return self._message(a, b, nbytes, dtype).duration

    def footprint_of_message(
        self, source: int, destination: int, nbytes: Bytes, dtype: str
    ) -> Footprint:
        """Of one message."""
        a, b = self.places.device(source), self.places.device(destination)
        return NOTHING if a == b else self.footprints.of(self._message(a, b, nbytes, dtype))

    def _message(self, a: int, b: int, nbytes: Bytes, dtype: str) -> Prediction:
        key = (a, b, nbytes, dtype)
        if key not in self.known:
            self.known[key] = self._ask(
                Collective("send_recv", nbytes, _dtype(dtype), (a, b), root=a)
            )
        return self.known[key]

    def _ask(self, collective: Collective) -> Prediction:
        return predict(collective, self.places.cluster, self.library, self.profile)


def _collective(
    call: Call, ranks: Ranks, root: int | None, splits: Splits | None
) -> Collective:  # fmt: skip
    dtype = _dtype(call.dtype)
    if splits is not None and len({n for row in splits for n in row}) > 1:
        return Collective.uneven(splits, dtype=dtype, ranks=ranks)
    return Collective(
        call.operation, call.nbytes, dtype, ranks, root=root,
        reduce_op=call.reduce_op if call.reduce_op in REDUCE_OPS else "sum",
    )  # fmt: skip


def _dtype(name: str) -> str:
    """The name `predict` knows; others travel as bytes."""
    return name if name in DTYPES else "uint8"
