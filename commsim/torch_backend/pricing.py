"""What an operation of a script costs on the cluster, in s: `predict`, asked once for each kind."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from commsim.collectives.collective import DTYPES, REDUCE_OPS, Collective
from commsim.cost.profile import Profile
from commsim.libraries.library import Library
from commsim.prediction import Prediction, predict
from commsim.topology.cluster import Cluster
from commsim.torch_backend.records import Call
from commsim.units import Bytes, Seconds


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

    Operations are priced as if each had the network to itself; a rank sends one message at a time
    and receives one at a time, and a group carries out its collectives in order.
    """

    places: Places
    library: Library
    profile: Profile | None = None
    known: dict[Hashable, Prediction] = field(default_factory=dict)

    def of_collective(
        self, call: Call, splits: tuple[tuple[Bytes, ...], ...] | None = None
    ) -> Seconds:
        """s of a collective by all ranks of the call's group; a group of one takes none."""
        prediction = self.predicted(call, splits)
        return 0.0 if prediction is None else prediction.duration

    def predicted(
        self, call: Call, splits: tuple[tuple[Bytes, ...], ...] | None = None
    ) -> Prediction | None:
        """The prediction behind `of_collective`; None for a group of one."""
        if len(call.group.ranks) < 2:
            return None
        key = (
            call.operation,
            call.nbytes,
            call.dtype,
            call.group,
            call.root,
            call.reduce_op,
            splits,
        )
        if key not in self.known:
            self.known[key] = self._ask(self._collective(call, splits))
        return self.known[key]

    def _collective(self, call: Call, splits: tuple[tuple[Bytes, ...], ...] | None) -> Collective:
        ranks = tuple(map(self.places.device, call.group.ranks))
        dtype = _dtype(call.dtype)
        if splits is not None and len({n for row in splits for n in row}) > 1:
            return Collective.uneven(splits, dtype=dtype, ranks=ranks)
        return Collective(
            call.operation, call.nbytes, dtype, ranks,
            root=None if call.root is None else self.places.device(call.root),
            reduce_op=call.reduce_op if call.reduce_op in REDUCE_OPS else "sum",
        )  # fmt: skip

    def of_message(self, source: int, destination: int, nbytes: Bytes, dtype: str) -> Seconds:
        """s of one message; to itself it takes none."""
        if source == destination:
            return 0.0
        a, b = self.places.device(source), self.places.device(destination)
        per_node = self.places.cluster.gpus_per_node
        if a // per_node == b // per_node:  # machines are alike: ask about the first
            a, b = a % per_node, b % per_node
        key = (a, b, nbytes, dtype)
        if key not in self.known:
            self.known[key] = self._ask(
                Collective("send_recv", nbytes, _dtype(dtype), (a, b), root=a)
            )
        return self.known[key].duration

    def _ask(self, collective: Collective) -> Prediction:
        return predict(collective, self.places.cluster, self.library, self.profile)


def _dtype(name: str) -> str:
    """The name `predict` knows; others travel as bytes."""
    return name if name in DTYPES else "uint8"
