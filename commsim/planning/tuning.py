"""What NCCL could be told: settings under which a plan's exposed messages would be shorter.

    saved = sum over messages of an operation (count x exposed x (1 - forced / chosen))

For every operation all messages of a rank are predicted under each algorithm and protocol that the
library could run all of them with; NCCL_ALGO and NCCL_PROTO hold for all groups of an operation at
once ("allreduce:tree", NCCL >= 2.24). A step hides messages behind compute, so only what shows of
them can be saved. Ignored: that faster messages leave more bandwidth to others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from commsim.collectives.collective import Collective
from commsim.prediction import predict
from commsim.units import Seconds
from commsim.workload.layouts.groups import groups
from commsim.workload.passes import Sent
from commsim.workload.step import StepPrediction

WORTH = 0.005
"""Share of a step below which a setting is not worth its risk."""
ALGORITHMS = {
    "ring": "Ring", "tree": "Tree", "nvls": "NVLS", "nvls_tree": "NVLSTree", "pat": "PAT",
    "collnet_direct": "CollnetDirect", "collnet_chain": "CollnetChain",
}  # fmt: skip
OPERATIONS = {
    "all_reduce": "allreduce", "all_gather": "allgather", "reduce_scatter": "reducescatter",
    "broadcast": "broadcast", "reduce": "reduce",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Variables to set, and s of a step that they save."""

    variables: tuple[tuple[str, str], ...]
    saved: Seconds

    @property
    def text(self) -> str:
        """As a shell takes it: NCCL_ALGO=allreduce:Tree NCCL_PROTO=allreduce:LL128."""
        return " ".join(f"{name}={value}" for name, value in self.variables)

    def to_dict(self) -> dict[str, object]:
        """Plain figures for JSON, keys with their unit."""
        return {"variables": dict(self.variables), "saved_s": self.saved}


def settings(step: StepPrediction, worth: float = WORTH) -> tuple[Setting, ...]:
    """Settings that save at least that share of the step, the best of each operation; the most
    saving first. None where the cluster's library is not NCCL."""
    if not step.cluster.default_library.startswith("nccl"):
        return ()
    listed: dict[str, list[tuple[str, Sent]]] = defaultdict(list)
    for sent in step.messages:
        if sent.message.operation in OPERATIONS and sent.message.ranks > 1:
            listed[sent.message.operation].append((sent.kind, sent))
    found = []
    for operation, messages in listed.items():
        best = max(_candidates(step, operation, messages), key=lambda s: s.saved, default=None)
        if best is not None and best.saved >= worth * step.duration:
            found.append(best)
    return tuple(sorted(found, key=lambda s: -s.saved))


def _candidates(
    step: StepPrediction, operation: str, messages: list[tuple[str, Sent]]
) -> Iterator[Setting]:
    """Every algorithm and protocol that all messages of an operation can be run with."""
    saved: dict[tuple[str, str], list[Seconds]] = defaultdict(list)
    for kind, sent in messages:
        ranks = groups(step.layout).ranks(_group(kind, sent, step))
        prediction = predict(
            Collective(operation, nbytes=sent.message.nbytes, ranks=ranks), step.cluster
        )
        for other in prediction.alternatives:
            if other.available and other.algorithm in ALGORITHMS:
                gain = 1 - other.duration / prediction.duration
                saved[other.algorithm, other.protocol].append(sent.count * sent.exposed * gain)
    name = OPERATIONS[operation]
    for (algorithm, protocol), gains in saved.items():
        if len(gains) == len(messages):
            variables = (
                ("NCCL_ALGO", f"{name}:{ALGORITHMS[algorithm]}"),
                ("NCCL_PROTO", f"{name}:{protocol}"),
            )
            yield Setting(variables=variables, saved=sum(gains))


def _group(kind: str, sent: Sent, step: StepPrediction) -> str:
    """The kind of group whose size is that of the message's ranks."""
    known = groups(step.layout)
    names = {"dp": ("dp", "shard", "replicate", "edp", "expert_shard", "expert_replicate"),
             "tp": ("tp", "etp")}.get(kind, (kind,))  # fmt: skip
    return next(name for name in names if known.size(name) == sent.message.ranks)
