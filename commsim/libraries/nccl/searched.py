"""Results of slow graph searches that come with the package, found again by what was searched.

`searched.json` holds the presets' machines whose search takes longer than a tenth of a second;
`python -m validation.search_presets` writes it. A machine, group or setting that is not in it is
searched anew, so the file changes speed and never an answer.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from commsim.libraries.nccl.graph import Graph, PathType, Pattern

FILE = Path(__file__).with_name("searched.json")
Found = dict[str, Graph | None]
_NAMES = ("ring", "tree", "nvls", "chain", "direct")


def key(*question: object) -> str:
    """A short name of everything that decides a search; equal questions have equal names."""
    return hashlib.sha256(repr(question).encode()).hexdigest()[:20]


@lru_cache(maxsize=1)
def _file() -> dict[str, Any]:
    if not FILE.is_file():
        return {"questions": {}, "answers": []}
    content: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
    return content


def recall(name: str) -> tuple[Found, ...] | None:
    """The graphs of each NCCL node of a domain, or None where the file does not hold them."""
    place = _file()["questions"].get(name)
    if place is None:
        return None
    return unpack(_file()["answers"][place])


def pack(found: tuple[Found, ...]) -> list[Any]:
    """Graphs as plain JSON values."""
    return [[_plain(node.get(name)) for name in _NAMES] for node in found]


def unpack(plain: list[Any]) -> tuple[Found, ...]:
    """Graphs from what `pack` made of them."""
    return tuple({n: _graph(g) for n, g in zip(_NAMES, node, strict=True)} for node in plain)


def _plain(graph: Graph | None) -> list[Any] | None:
    if graph is None:
        return None
    orders = list(dict.fromkeys(graph.orders))
    return [
        int(graph.pattern),
        graph.channels,
        graph.bw_intra,
        graph.bw_inter,
        int(graph.type_intra),
        int(graph.type_inter),
        int(graph.same_channels),
        graph.cross_nic,
        graph.latency_inter,
        graph.hops,
        [" ".join(map(str, order)) for order in orders],
        [orders.index(order) for order in graph.orders],
        [list(pair) for pair in graph.nets],
    ]


def _graph(plain: list[Any] | None) -> Graph | None:
    if plain is None:
        return None
    orders = [tuple(map(int, text.split())) for text in plain[10]]
    return Graph(
        pattern=Pattern(plain[0]),
        channels=plain[1],
        bw_intra=plain[2],
        bw_inter=plain[3],
        type_intra=PathType(plain[4]),
        type_inter=PathType(plain[5]),
        same_channels=bool(plain[6]),
        cross_nic=plain[7],
        latency_inter=plain[8],
        hops=plain[9],
        orders=tuple(orders[i] for i in plain[11]),
        nets=tuple((a, b) for a, b in plain[12]),
    )
