"""What a shell may offer for an argument: names of catalogues that begin with what was typed."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, get_args, get_origin

from commsim.cli.names import CATALOGUES

OFFERED: Mapping[str, str] = {
    "cluster": "clusters", "cluster_a": "clusters", "cluster_b": "clusters", "source": "clusters",
    "rest": "operations clusters", "model": "models", "op": "operations", "dtype": "dtypes",
    "algorithm": "algorithms", "schedule": "schedules", "gpu": "gpus", "catalogue": "catalogues",
}  # fmt: skip
"""By parameter's name, the catalogues of which names are offered."""


def completing(signature: inspect.Signature) -> inspect.Signature:
    """The signature whose options and arguments know what may be offered for them."""
    return signature.replace(parameters=[_knowing(p) for p in signature.parameters.values()])


def _knowing(parameter: inspect.Parameter) -> inspect.Parameter:
    offered = OFFERED.get(parameter.name)
    if offered is None or get_origin(parameter.annotation) is not Annotated:
        return parameter
    kind, info = get_args(parameter.annotation)
    info = copy.copy(info)
    info.autocompletion = _offering(offered)
    changed: Any = Annotated[kind, info]
    return parameter.replace(annotation=changed)


def _offering(catalogues: str) -> Callable[[str], list[str]]:
    def names() -> Iterable[str]:
        for catalogue in catalogues.split():
            yield from CATALOGUES if catalogue == "catalogues" else CATALOGUES[catalogue][1]()

    def offer(incomplete: str) -> list[str]:
        return [name for name in names() if name.lower().startswith(incomplete.lower())]

    return offer
