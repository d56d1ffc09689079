"""A layout as what its framework reads: found by name, a file each in emitters/."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

import commsim.planning.emitters as here
from commsim.errors import PlanError, UnknownNameError
from commsim.topology.cluster import Cluster
from commsim.workload.layout import Layout
from commsim.workload.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """Text that a framework accepts, and what it cannot be told there, a sentence each."""

    text: str
    notes: tuple[str, ...] = ()


Emitter = Callable[[Layout, Model, Cluster, float | None], Emission]


def emit(
    name: str, layout: Layout, model: Model, cluster: Cluster, bucket: float | None = None
) -> Emission:
    """The flags or the configuration of a layout for "megatron", "torchtitan", "deepspeed", "fsdp"
    or "nemo". bucket: elements of the gradients' buckets (None: the framework's own size). Raises
    PlanError for a layout that was planned for another framework.

    >>> from commsim.topology.load import load_cluster
    >>> from commsim.workload.load import load_model
    >>> layout = Layout(tp=2, dp=4, global_batch=32, seq_len=4096)
    >>> emit("megatron", layout, load_model("llama3-8b"), load_cluster("dgx-h100")).text[:29]
    '--tensor-model-parallel-size '
    """
    known = emitters()
    if name not in known:
        raise UnknownNameError("framework to emit for", name, known)
    module = importlib.import_module(f"{here.__name__}.{name}")
    if layout.framework not in module.OF:
        raise PlanError(
            f"emit {name}: the layout is one of {layout.framework}; plan with framework "
            f"{' or '.join(module.OF)}"
        )
    emitter: Emitter = module.emit
    return emitter(layout, model, cluster, bucket)


def emitters() -> tuple[str, ...]:
    """The frameworks that layouts can be written for."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(here.__path__)))
