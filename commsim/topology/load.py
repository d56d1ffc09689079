"""From a preset's name, a file or a dict to a Cluster: the one door for hardware."""

from __future__ import annotations

import copy
import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast, get_args

from commsim.errors import SpecError, UnitError, UnknownNameError
from commsim.topology import hosts, parts, spec
from commsim.topology.build import build
from commsim.topology.cluster import Cluster, Fabric
from commsim.topology.defaults import cpu_vendor, default_domain, placement
from commsim.topology.discovered import on_subnet
from commsim.topology.explicit import build_explicit
from commsim.topology.imported import Stated, interconnect_of, island, placement_of, read_machine
from commsim.topology.importers import ibnetdiscover
from commsim.topology.node import NodeTopology
from commsim.topology.parts import GpuPart
from commsim.topology.spec import ClusterSpec
from commsim.topology.spec_problems import parse
from commsim.units import parse_rate

NEWEST = {"nccl": "nccl@2.30.7", "rccl": "rccl@2.27.7", "mpi": "mpi"}
_MAX_EXTENDS = 8
_MAX_DEPTH = 16


def load_cluster(
    source: str | os.PathLike[str] | Mapping[str, Any], **overrides: object
) -> Cluster:
    """The cluster that a preset, a file (.toml, NCCL .xml, topo -m .txt) or a dict describes.

    Overrides are keys of the cluster file, dotted: `load_cluster("dgx-h100", nodes=4,
    **{"node.nics.count": 4})`. Every default used is in `notes`. Raises SpecError with one line for
    each problem, UnknownNameError for a preset that does not exist.

    >>> load_cluster("dgx-h100", nodes=4).n_ranks
    32
    """
    if isinstance(source, Mapping):
        raw = _plain(source)
        return _from_tables(_extended(raw, Path()), str(raw.get("name", "cluster")), overrides)
    name = os.fspath(source)
    path = Path(name)
    if path.suffix in (".xml", ".txt"):
        return _imported(path, overrides)
    if path.suffix == ".toml" or os.sep in name or isinstance(source, os.PathLike):
        return _from_tables(_extended(_read(path), path.parent), path.name, overrides)
    if overrides:
        return _from_tables(copy.deepcopy(_preset(name)), name, overrides)
    return _plain_preset(name)


def presets() -> tuple[str, ...]:
    """The names of all presets."""
    return tuple(sorted(path.stem for path in parts.topologies_folder().glob("*.toml")))


@lru_cache(maxsize=256)
def _plain_preset(name: str) -> Cluster:
    return _from_tables(copy.deepcopy(_preset(name)), name, {})


@lru_cache(maxsize=256)
def _preset(name: str) -> dict[str, Any]:
    """The tables of a preset, with what it extends merged in."""
    known = presets()
    wanted = name.lower().replace("_", "-")
    if wanted not in known:
        if Path(name).exists():
            raise SpecError([f"{name}: expected a file that ends in .toml, .xml or .txt"])
        raise UnknownNameError("cluster preset", name, known, "commsim names clusters")
    folder = parts.topologies_folder()
    return _extended(_read(folder / f"{wanted}.toml"), folder)


def _read(path: Path) -> dict[str, Any]:
    try:
        return _beside(path.parent, tomllib.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        close = difflib.get_close_matches(path.stem, presets(), n=1, cutoff=0.5)
        hint = f' (or did you mean the preset "{close[0]}"?)' if close else ""
        raise SpecError(
            [f"{path}: no such file; expected a cluster file or the name of a preset{hint}"]
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError([f"{path}: cannot be read as text: {error}"]) from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SpecError([f"{path.name}: not valid TOML: {error}"]) from None


def _beside(folder: Path, tables: dict[str, Any]) -> dict[str, Any]:
    """The tables with the files they name found from the folder of the file that names them."""
    fabric = tables.get("fabric")
    if isinstance(fabric, dict) and isinstance(fabric.get("cabling"), str):
        fabric["cabling"] = str(folder / fabric["cabling"])
    return tables


def _plain(source: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """A copy in plain dicts; SpecError on tables inside one another without end."""
    if depth > _MAX_DEPTH:
        raise SpecError(
            [f"more than {_MAX_DEPTH} tables one inside another, expected at most 2: [node.nics]"]
        )
    return {
        k: _plain(v, depth + 1) if isinstance(v, Mapping) else copy.copy(v)
        for k, v in source.items()
    }


def _extended(raw: dict[str, Any], folder: Path, depth: int = 0) -> dict[str, Any]:
    """The tables with those of `extends` underneath."""
    base = raw.pop("extends", None)
    if base is None:
        return raw
    if not isinstance(base, str):
        raise SpecError([f"extends: expected a preset or a file, got {base!r}"])
    if depth >= _MAX_EXTENDS:
        raise SpecError([f'extends: "{base}" is more than {_MAX_EXTENDS} files deep, or a circle'])
    if base.endswith(".toml"):
        path = folder / base
        below = _extended(_read(path), path.parent, depth + 1)
    else:
        known = presets()
        if base not in known:
            raise UnknownNameError("cluster preset", base, known, "commsim names clusters")
        home = parts.topologies_folder()
        below = _extended(_read(home / f"{base}.toml"), home, depth + 1)
    return _merged(below, raw)


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    out = dict(below)
    for key, value in above.items():
        old = out.get(key)
        out[key] = (
            _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
        )
    return out


def _with_overrides(
    raw: dict[str, Any], where: str, overrides: Mapping[str, object]
) -> dict[str, Any]:
    """The tables with each dotted key set; SpecError for keys that no cluster file has."""
    known = spec.known_keys() if overrides else ()
    problems = []
    for key, value in overrides.items():
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            other = f" ({len(known)} are known: commsim names keys)"
            hint = f'; did you mean "{close[0]}"?' if close else other
            problems.append(f"override {key}: unknown key{hint}")
            continue
        *tables, last = key.split(".")
        at = raw
        for table in tables:
            inner = at.setdefault(table, {})
            if not isinstance(inner, dict):
                problems.append(f"override {key}: {where} holds no table at {table}")
                break
            at = inner
        else:
            at[last] = _plain(value) if isinstance(value, Mapping) else value
            if value is None:  # leaves the key out
                del at[last]
    if problems:
        raise SpecError(problems)
    return raw


def _from_tables(raw: dict[str, Any], where: str, overrides: Mapping[str, object]) -> Cluster:
    checked = parse(_with_overrides(raw, where, overrides), where, overrides)
    if checked.device:
        return _explicit(checked)
    if hosts.on_cpus(checked.node):
        return hosts.cluster(checked)
    try:
        return _cluster(checked)
    except SpecError as error:
        raise SpecError(f"{where}: {problem}" for problem in error.problems) from None


def _cluster(checked: ClusterSpec) -> Cluster:
    part = spec.gpu_part(checked)
    fabric, notes = _fabric(checked, part)
    node, built = build(checked.node, fabric.transport, fabric.sharp)
    cluster = Cluster(
        name=checked.name,
        nodes=checked.nodes,
        node=node,
        fabric=fabric,
        gpu=part,
        interconnect=_interconnect(checked),
        nic_placement=placement(checked.node, part),
        default_library=checked.library or _library(part),
        notes=(*_node_notes(checked, part), *built, *notes),
        price_per_gpu_hour=checked.price_per_gpu_hour,
    )
    return _as_cabled(cluster, checked)


def _as_cabled(cluster: Cluster, checked: ClusterSpec) -> Cluster:
    """The cluster on the cables that `fabric.cabling` lists, if it names a file."""
    if checked.fabric is None or checked.fabric.cabling is None:
        return cluster
    nodes = checked.nodes if "nodes" in checked.model_fields_set else None
    return on_subnet(cluster, ibnetdiscover.read(checked.fabric.cabling), nodes)


def _interconnect(checked: ClusterSpec) -> str:
    """What joins the GPUs; MIG slices are left with PCIe."""
    kind = checked.node.interconnect or ""
    return "pcie-switch" if checked.node.mig else kind


def _library(part: GpuPart) -> str:
    return NEWEST[{"nvidia": "nccl", "amd": "rccl"}.get(part.vendor, "mpi")]


def _fabric(checked: ClusterSpec, part: GpuPart) -> tuple[Fabric, list[str]]:
    stated = checked.fabric or spec.FabricSpec.model_validate({})
    notes = []
    domain = stated.scale_up_domain
    if domain is None:
        domain = default_domain(checked, part)
        if domain != (checked.node.gpus or 1):
            notes.append(f"fabric.scale_up_domain: not stated, {domain} taken")
    nics = checked.node.nics is not None or any(d.kind == "nic" for d in checked.device)
    if nics and checked.nodes > 1:
        given = stated.model_fields_set
        for key in ("kind", "transport", "oversubscription", "sharp"):
            if key not in given:
                value = getattr(stated, key)
                text = f'"{value}"' if isinstance(value, str) else str(value).lower()
                notes.append(f"fabric.{key}: not stated, {text} taken")
    fabric = Fabric(
        kind=stated.kind,
        transport=stated.transport,
        oversubscription=stated.oversubscription,
        sharp=stated.sharp,
        scale_up_domain=domain,
    )
    return fabric, notes


def _node_notes(checked: ClusterSpec, part: GpuPart) -> list[str]:
    node, notes = checked.node, []
    if checked.library is None:
        notes.append(f"library: not stated, {_library(part)} taken")
    if node.cpu is None and node.cpu_part is None:
        notes.append(f'node.cpu: not stated, "{cpu_vendor(node, part)}" taken')
    if node.p2p is None and not node.mig and not part.p2p:
        notes.append(f"node.p2p: not stated, false taken: the driver refuses it on {part.name}")
    if node.nics is not None and "gpudirect" not in node.nics.model_fields_set:
        notes.append("node.nics.gpudirect: not stated, true taken")
    if node.mig:
        notes.append(f"node.mig: slices of {node.mig} have neither NVLink nor peer-to-peer")
    return notes


def _explicit(checked: ClusterSpec) -> Cluster:
    node, notes = build_explicit(checked)
    return _assembled(checked, node, notes)


_IMPORT_KEYS = (
    "name",
    "nodes",
    "library",
    "price_per_gpu_hour",
    "node.gpu",
    "node.gpus",
    "node.interconnect",
    "node.p2p",
    "node.nics.rate",
)


def _imported(path: Path, overrides: Mapping[str, object]) -> Cluster:
    """A machine from NCCL's XML or from `topo -m` text; what such text lacks comes by overrides."""
    problems = [
        f"override {key}: {path.name} describes the machine; expected one of"
        f" {', '.join(_IMPORT_KEYS)} or fabric.*"
        for key in overrides
        if key not in _IMPORT_KEYS and not key.startswith("fabric")
    ]
    if not path.is_file():
        problems.append(f"{path}: no such file; expected a topology file")
    if problems:
        raise SpecError(problems)
    node, part, notes = read_machine(path, _stated(path, overrides))
    # The checks of a cluster file look at a graph: this list stands for the one just read.
    raw: dict[str, Any] = {
        "name": path.stem,
        "node": {"gpu": part.name},
        "device": [{"name": g.name, "kind": "gpu"} for g in node.gpus]
        + [{"name": n.name, "kind": "nic", "rate": "1GB/s"} for n in node.nics],
    }
    used = ("node.gpus", "node.interconnect", "node.nics.rate")
    kept = {key: value for key, value in overrides.items() if key not in used}
    checked = parse(_with_overrides(raw, path.name, kept), path.name, kept)
    if checked.node.p2p is not None:
        node = replace(node, gpu_peer_access=None if checked.node.p2p else False)
    return _assembled(checked, node, notes)


def _stated(path: Path, overrides: Mapping[str, object]) -> Stated:
    """What overrides say about a machine read from a file; SpecError if they do not fit."""
    problems = []
    gpu, gpus = overrides.get("node.gpu"), overrides.get("node.gpus")
    kind, rate = overrides.get("node.interconnect"), overrides.get("node.nics.rate")
    if gpu is not None and not isinstance(gpu, str):
        problems.append(f"override node.gpu: expected a GPU of the catalogue, got {gpu!r}")
    if gpus is not None and (path.suffix != ".xml" or type(gpus) is not int or gpus < 1):
        problems.append(
            f"override node.gpus: {path.name} shows the GPUs; only for a topology XML that marks"
            f" none, a whole number such as 8, got {gpus!r}"
        )
    if kind is not None and kind not in get_args(spec.Interconnect):
        known = ", ".join(get_args(spec.Interconnect))
        problems.append(f"override node.interconnect: expected one of {known}, got {kind!r}")
    if rate is not None:
        try:
            parse_rate(cast(str, rate))
        except UnitError as error:
            problems.append(f"override node.nics.rate: {error}")
    if problems:
        raise SpecError(problems)
    return Stated(
        gpu=cast("str | None", gpu),
        gpus=cast("int | None", gpus) or 0,
        interconnect=cast("str | None", kind),
        nic_rate=cast("str | None", rate),
    )


def _assembled(checked: ClusterSpec, node: NodeTopology, notes: tuple[str, ...]) -> Cluster:
    """The cluster of a machine that came as a graph: its words are read off the links."""
    part = parts.gpu(checked.node.gpu or node.gpus[0].part)
    fabric, more = _fabric(checked, part)
    kind = interconnect_of(node)
    domain = checked.fabric.scale_up_domain if checked.fabric else None
    more = [note for note in more if "scale_up_domain" not in note]
    if domain is None:
        rack = kind == "nvswitch" and part.domain > 16
        domain = part.domain if rack else island(node)
        if rack:
            more.append(f"fabric.scale_up_domain: not stated, {domain} taken")
    cluster = Cluster(
        name=checked.name,
        nodes=checked.nodes,
        node=node,
        fabric=replace(fabric, scale_up_domain=domain),
        gpu=part,
        interconnect=kind,
        nic_placement=placement_of(node),
        default_library=checked.library or _library(part),
        notes=(*notes, *more),
        price_per_gpu_hour=checked.price_per_gpu_hour,
    )
    return _as_cabled(cluster, checked)
