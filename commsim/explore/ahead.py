"""What may be asked next, reckoned while nobody asks: the slow part of a machine that is new.

That part is the search of rings and trees, which the library keeps by machine; a step of these
iterators is one search, a tenth of a second or so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from commsim.collectives.collective import Collective
from commsim.errors import CommsimError
from commsim.explore.clusters import cluster_of
from commsim.explore.questions import CollectiveQuestion, Side, read
from commsim.libraries.lookup import library
from commsim.topology.load import presets

NODES = 4
"""Machines that the page begins with."""
NICS = (1, 2, 4, 8)


def every_preset() -> Iterator[None]:
    """Each preset of the catalogue, as the page would ask for it when it is chosen."""
    return _searched(Side.model_validate({"preset": name, "nodes": NODES}) for name in presets())


def around(question: Mapping[str, Any]) -> Iterator[None]:
    """The same clusters with more or fewer NICs in a node."""
    sides: tuple[Side, ...] = ()
    with suppress(CommsimError):
        sides = read(CollectiveQuestion, question).sides
    return _searched(
        side.model_copy(update={"nics": count})
        for side in sides for count in NICS if count != side.nics
    )  # fmt: skip


def _searched(sides: Iterable[Side]) -> Iterator[None]:
    for side in sides:
        with suppress(Exception):  # what cannot be asked will say so when it is
            cluster = cluster_of(side)
            chooser = library(side.library or cluster.default_library)
            chooser.choose(Collective("all_reduce", nbytes=1 << 20), cluster)
        yield
