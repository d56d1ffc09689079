"""`commsim names`: what the catalogues hold, a name a line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated

import typer

from commsim.cli import _arguments as a
from commsim.cli._output import print_facts, print_json
from commsim.collectives import catalogue
from commsim.collectives.collective import DTYPES, OPERATIONS
from commsim.errors import UnknownNameError
from commsim.topology import parts
from commsim.topology.load import presets
from commsim.topology.spec import known_keys
from commsim.topology.wiring import fabric_kinds


def _models() -> Iterable[str]:
    from commsim.workload import load  # half a second that other catalogues do not need

    return load.presets()


def _schedules() -> Iterable[str]:
    from commsim.workload.pipeline import schedules

    return schedules()


CATALOGUES: Mapping[str, tuple[str, Callable[[], Iterable[str]]]] = {
    "clusters": ("presets of clusters, for CLUSTER", presets),
    "models": ("presets of models, for --model", _models),
    "operations": ("of torch.distributed, for OP", lambda: OPERATIONS),
    "dtypes": ("torch's and nccl-tests' names of types", lambda: [*DTYPES, *a.DTYPE_NAMES]),
    "algorithms": ("of collectives, for simulate --algorithm", catalogue.names),
    "schedules": ("of pipelines, for step --schedule", _schedules),
    "gpus": ("for node.gpu and --gpu", lambda: (p.name for p in parts.gpus())),
    "nics": ("for a cluster file", lambda: (p.name for p in parts.nics())),
    "switches": ("for a cluster file", lambda: (p.name for p in parts.switches())),
    "links": ("generations of links", lambda: (p.name for p in parts.links())),
    "cpus": ("for a cluster file", lambda: (p.name for p in parts.cpus())),
    "fabrics": ("for fabric.kind", fabric_kinds),
    "keys": ("of a cluster file, for --set", known_keys),
}


def names(
    catalogue: Annotated[
        str | None,
        typer.Argument(metavar="CATALOGUE", help=f"{', '.join(CATALOGUES)}.", show_default=False),
    ] = None,
    json: a.Json = False,
) -> None:
    """The names that commsim knows: of clusters, models, operations, GPUs and other catalogues.

    Example: commsim names clusters

    Exit codes: 0 ok, 2 bad input.
    """
    if catalogue is None:
        held = {name: len(list(listed())) for name, (_, listed) in CATALOGUES.items()}
        if json:
            print_json(held)
        else:
            print_facts((name, f"{held[name]:>4} {what}") for name, (what, _) in CATALOGUES.items())
        return
    if catalogue not in CATALOGUES:
        raise UnknownNameError("catalogue", catalogue, CATALOGUES)
    found = sorted(set(CATALOGUES[catalogue][1]()))
    if json:
        print_json(found)
    else:
        print("\n".join(found))
