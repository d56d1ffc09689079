"""The cluster of a side: a preset, or what a text describes that was written or uploaded.

A text is read as what it is: a cluster file (TOML), NCCL's topology (XML), or what nvidia-smi or
rocm-smi print. No file is opened for it: those that a cluster file may name are refused.
"""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from commsim.errors import CommsimError, ExploreError, UnknownNameError
from commsim.explore.questions import MOST_RANKS, Side
from commsim.explore.toml import written
from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster, presets

MATRIX = ("GPU0", "Link Type between")
"""What the texts of `nvidia-smi topo -m` and of `rocm-smi --showtopo` hold."""


def known(kind: str, name: str, names: tuple[str, ...]) -> str:
    """The name if it is one of the catalogue's, which a path never is; UnknownNameError if not."""
    if name not in names:
        raise UnknownNameError(kind, name, names)
    return name


@lru_cache(maxsize=64)
def cluster_of(side: Side) -> Cluster:
    """The cluster of a side. Raises a CommsimError that says what is wrong with it."""
    cluster = _loaded(side)
    if cluster.n_ranks > MOST_RANKS:
        raise ExploreError(
            f"nodes: {cluster.nodes:,} nodes are {cluster.n_ranks:,} GPUs; the page takes up to"
            f" {MOST_RANKS:,}; ask the command line"
        )
    return cluster


def as_toml(side: Side) -> str:
    """The side as a cluster file. Raises ExploreError for a machine that came as a topology."""
    if form_of(side.text) in (".xml", ".txt"):
        raise ExploreError(
            "Download TOML: the machine came as a topology file; keep that, which every command"
            " takes in a cluster file's place"
        )
    tables: dict[str, Any] = tables_of(side.text) if side.text else {"extends": side.preset}
    changes = side.overrides() | ({"library": side.library} if side.library else {})
    for key, value in changes.items():
        *above, last = key.split(".")
        at = tables
        for name in above:
            at = at.setdefault(name, {})
        at[last] = value
    return written(tables)


def form_of(text: str) -> str:
    """The ending that a file of this text would have: .toml, .xml, .txt; "" of no text."""
    if not text.strip():
        return ""
    if text.lstrip().startswith("<"):
        return ".xml"
    return ".txt" if any(word in text for word in MATRIX) and not _is_toml(text) else ".toml"


def tables_of(text: str) -> dict[str, Any]:
    """The tables of a cluster file, which may extend presets only, and name no file."""
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ExploreError(f"cluster: not valid TOML: {error}") from None
    base, fabric = tables.get("extends"), tables.get("fabric")
    if isinstance(base, str):
        known("cluster preset", base, presets())
    if isinstance(fabric, Mapping) and "cabling" in fabric:
        raise ExploreError(
            "fabric.cabling: the page opens no file that a text names; ask the command line"
        )
    return tables


def _loaded(side: Side) -> Cluster:
    changes, form = side.overrides(), form_of(side.text)
    if form == "":
        return load_cluster(known("cluster preset", side.preset, presets()), **changes)
    if form == ".toml":
        return load_cluster(tables_of(side.text), **changes)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"uploaded{form}"
        file.write_text(side.text, encoding="utf-8")
        try:
            return load_cluster(file, **changes)
        except CommsimError as error:
            raise ExploreError(str(error).replace(f"{folder}/", "")) from None


def _is_toml(text: str) -> bool:
    try:
        return bool(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError):
        return False
