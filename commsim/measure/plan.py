"""What is to be measured, as plain data: every rank gets the same plan and follows it in step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from commsim.collectives.collective import Collective
from commsim.units import Bytes, Seconds

Gemm = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How it is measured.

    timing: "isolated": the ranks begin each run at one time and the next comes after it; "loop":
    one run right after the other, as nccl-tests; "": isolated on a CPU, loop on a GPU. block: runs
    of a loop that one sample spans (0: 1 on a CPU, a fifth of them on a GPU, where marking each
    would add to them). rotate: bytes of buffers that runs go through in turn; None: twice the
    last-level cache of a GPU, else one buffer. copies: an out-of-place form where the library has
    none, by a copy first. timeout: s without any progress after which it is given up.
    """

    backend: str
    iterations: int = 20
    warmup: int = 5
    check: bool = True
    timing: str = ""
    block: int = 0
    rotate: Bytes | None = None
    cudagraph: bool = False
    copies: bool = False
    timeout: Seconds = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing to measure. kind: a module of `kinds/`. forms: in place or not, one record each.
    groups: where several run the collective at once. gemm: m, n, k, and its dtype."""

    kind: str
    collective: Collective | None = None
    forms: tuple[bool, ...] = (False,)
    groups: tuple[tuple[int, ...], ...] = ()
    gemm: Gemm | None = None
    gemm_dtype: str = "float32"

    @property
    def product(self) -> dict[str, object]:
        """What is multiplied, as a record says it."""
        m, n, k = self.gemm or (0, 0, 0)
        return {"kind": self.kind, "m": m, "n": n, "k": k, "dtype": self.gemm_dtype}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything for one run of `n_ranks` processes. run: a name of its own; command: what was
    typed."""

    run: str
    n_ranks: int
    settings: Settings
    steps: tuple[Step, ...]
    command: tuple[str, ...] = field(default=())

    def to_json(self) -> str:
        """The plan as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The plan that `to_json` wrote."""
        found = json.loads(text)
        return cls(
            run=found["run"], n_ranks=found["n_ranks"], settings=Settings(**found["settings"]),
            steps=tuple(_step(step) for step in found["steps"]), command=tuple(found["command"]),
        )  # fmt: skip


def _step(found: dict[str, Any]) -> Step:
    collective = found["collective"]
    if collective is not None:
        collective["ranks"] = _ranks(collective["ranks"])
        collective = Collective(**collective)
    return Step(
        kind=found["kind"], collective=collective, forms=tuple(found["forms"]),
        groups=tuple(tuple(group) for group in found["groups"]),
        gemm=None if found["gemm"] is None else tuple(found["gemm"]),
        gemm_dtype=found["gemm_dtype"],
    )  # fmt: skip


def _ranks(found: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if found is None else tuple(found)
