"""What `plan` and `compare --model` are asked: what is trained, and how its layout is searched."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from commsim.cli._output import chatty
from commsim.cli._planning import PLAYED, RANKED, TUNED
from commsim.planning.constraints import Values, excluded, fixed
from commsim.planning.engine import Engine
from commsim.planning.plans import Plans
from commsim.planning.plans import plan as find_plans
from commsim.planning.store import Store
from commsim.topology.cluster import Cluster
from commsim.workload.load import load_model
from commsim.workload.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What is trained, and how its layouts are searched. top: layouts ranked; simulate, tune: how
    many of them are looked at closer."""

    model: Model
    global_batch: int
    seq_len: int
    objective: str
    framework: tuple[str, ...]
    dtype: str
    held: Values
    without: Values
    top: int
    simulate: int
    tune: int
    profile: Path | None
    engine: Engine

    def plans(self, where: Cluster) -> Plans:
        """The best layouts on a cluster."""
        return self._plans(where, self.global_batch, self.top, self.simulate, self.tune)

    def best(self, where: Cluster, batch: int | None = None) -> Plans:
        """The first alone, by the closed form: for many clusters one after the other."""
        return self._plans(where, batch or self.global_batch, 1, 0, 0)

    def _plans(self, where: Cluster, batch: int, top: int, simulate: int, tune: int) -> Plans:
        return find_plans(
            self.model, where, global_batch=batch, seq_len=self.seq_len, objective=self.objective,
            framework=self.framework, dtype=self.dtype, only=self.held, without=self.without,
            top=top, simulate=simulate, tuned=tune, profile=self.profile, engine=self.engine,
            progress=_progress,
        )  # fmt: skip


def training(
    model: str,
    *,
    global_batch: int,
    seq: int,
    objective: str = "time",
    framework: Sequence[str] | None = None,
    dtype: str = "bfloat16",
    only: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    top: int = RANKED,
    simulate: int | None = None,
    tune: int | None = None,
    profile: Path | None = None,
    engine: str = "auto",
    jobs: int | None = None,
    results: Path | None = None,
) -> Training:
    """What a command line asks; a CommsimError on what it cannot read. A dimension that is held
    goes before its exclusion as a whole."""
    held, without = excluded(exclude or ())
    return Training(
        model=load_model(model), global_batch=global_batch, seq_len=seq, objective=objective,
        framework=tuple(framework or ("megatron",)), dtype=dtype, held=held | fixed(only or ()),
        without=without, top=top, profile=profile,
        simulate=min(top, PLAYED) if simulate is None else simulate,
        tune=min(top, TUNED) if tune is None else tune,
        engine=Engine(where=engine, jobs=jobs, store=None if results is None else Store(results)),
    )  # fmt: skip


def _progress(what: str, done: int, of: int) -> None:
    if chatty():
        words = {"memory": "batches surveyed", "time": "layouts timed"}
        print(f"\r\033[K{done:,} of {of:,} {words[what]}", end="\r", file=sys.stderr)
