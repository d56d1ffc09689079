"""The cluster file: its keys, their checks, and every problem reported at once.

A cluster file is TOML (or a dict of the same shape). `parse` turns it into a ClusterSpec or raises
SpecError with one line for each problem: file, key, what was expected, what was found.
Quantities are text with a unit; a bare number is refused with an example.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from commsim.errors import SpecError, UnitError, UnknownNameError
from commsim.topology import parts
from commsim.topology.parts import GpuPart
from commsim.units import format_rate, parse_rate, parse_time

Interconnect = Literal[
    "nvswitch",
    "nvlink-mesh",
    "nvlink-pairs",
    "nvlink-c2c",
    "xgmi-mesh",
    "pcie-switch",
    "pcie-host",
]
Placement = Literal["per-gpu", "per-pcie-switch", "per-socket", "single"]
FabricKind = Literal["rail-optimized", "fat-tree", "single-switch", "dragonfly", "torus", "direct"]
Transport = Literal["infiniband", "roce", "efa", "slingshot", "tcp", "tcpx", "tcpxo"]
CpuVendor = Literal["intel", "amd", "grace", "other"]

MAX_NODES, MAX_GPUS, MAX_NICS = 1 << 20, 64, 256


def _price(value: object) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*USD\s*", value) if isinstance(value, str) else None
    if not match:
        raise ValueError(f'expected a price with its currency such as "2.95 USD", got {value!r}')
    return float(match[1])


def _library(value: object) -> str:
    pattern = r"(nccl|rccl|gloo|mpi)(@\d+(\.\d+){0,2})?"
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise ValueError(f'expected a library such as "nccl@2.27.3" or "gloo", got {value!r}')
    return value


def _text_pcie(value: object) -> tuple[int, int]:
    if not isinstance(value, str):
        raise ValueError(f'expected a PCIe link such as "gen5 x16", got {value!r}')
    return parts.parse_pcie(value)


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


Rate = Annotated[float, BeforeValidator(parse_rate)]
Duration = Annotated[float, BeforeValidator(parse_time)]
Price = Annotated[float, BeforeValidator(_price)]
Library = Annotated[str, BeforeValidator(_library)]
Numas = Annotated[tuple[Annotated[int, Field(ge=0, le=255)], ...], BeforeValidator(_tuple)]
Pcie = Annotated[tuple[int, int], BeforeValidator(_text_pcie)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class NicsSpec(_Table):
    """`[node.nics]`: the network adapters of one machine.

    pcie: each adapter's own link. attach: "switch" hangs NICs under the GPUs' PCIe switches, "root"
    on the CPU's root ports; left out, the placement decides. ports_per_card: NICs that share one
    PCIe function.
    """

    count: int = Field(ge=1, le=MAX_NICS, description="a whole number of NICs, such as 8")
    rate: Rate | None = Field(None, description='a rate such as "400Gbit/s"')
    gpudirect: bool = Field(True, description="true or false")
    placement: Placement | None = Field(None, description="")
    part: str | None = Field(None, description='a NIC of the catalogue, such as "ConnectX-7"')
    pcie: Pcie | None = Field(None, description='a PCIe link such as "gen5 x16"')
    attach: Literal["switch", "root"] | None = Field(None, description="")
    ports_per_card: int = Field(1, ge=1, le=8, description="a whole number of ports, such as 2")


class NodeSpec(_Table):
    """`[node]`: one machine. Beyond the plain keys, where a machine needs them:

    cpu_part: CPU generation (topologies/parts/cpus.toml). sockets, numa: CPUs, NUMA nodes of each.
    gpu_numa: the NUMA node of each GPU in CUDA's order. pcie: each GPU's own link. pcie_switches:
    how many switches the GPUs hang under (0: root ports). mig: every GPU is cut into slices of
    this profile.
    """

    gpu: str | None = Field(None, description='a GPU of the catalogue, such as "H100-SXM5-80GB"')
    gpus: int | None = Field(
        None, ge=1, le=MAX_GPUS, description="a whole number of GPUs, such as 8"
    )
    interconnect: Interconnect | None = Field(None, description="")
    cpu: CpuVendor | None = Field(None, description="")
    p2p: bool | None = Field(None, description="true or false")
    cpu_part: str | None = Field(None, description='a CPU generation such as "epyc-rome"')
    sockets: int | None = Field(None, ge=1, le=16, description="a whole number of CPUs, such as 2")
    numa: int | None = Field(
        None, ge=1, le=16, description="NUMA nodes of one socket, a whole number such as 4"
    )
    gpu_numa: Numas | None = Field(
        None, description="the NUMA node of each GPU, such as [0, 0, 1, 1]"
    )
    pcie: Pcie | None = Field(None, description='a PCIe link such as "gen5 x16"')
    pcie_switches: int | None = Field(
        None, ge=0, le=MAX_GPUS, description="a whole number of switches, such as 4"
    )
    mig: str | None = Field(None, description='a MIG profile such as "1g.10gb"')
    nics: NicsSpec | None = Field(None, description="a table: [node.nics]")


class FabricSpec(_Table):
    """`[fabric]`: what joins the machines."""

    kind: FabricKind = Field("rail-optimized", description="")
    transport: Transport = Field("infiniband", description="")
    oversubscription: float = Field(1.0, ge=1.0, le=1024, description="a number from 1.0 up")
    sharp: bool = Field(False, description="true or false")
    scale_up_domain: int | None = Field(
        None, ge=1, le=1 << 20, description="GPUs in one NVLink domain, such as 8 or 72"
    )


class DeviceSpec(_Table):
    """`[[device]]`: one vertex of an explicit machine."""

    name: str = Field(min_length=1, description="a name of its own")
    kind: Literal["gpu", "nic", "cpu", "pcie-switch", "nvswitch"] = Field(description="")
    index: int | None = Field(None, ge=0, description="a whole number, such as 0")
    part: str | None = Field(None, description="a name from the catalogue")
    gpudirect: bool | None = Field(None, description="true or false")
    busid: str = Field("", description='a PCI address such as "0000:17:00.0"')
    rate: Rate | None = Field(None, description='a rate such as "400Gbit/s"')
    latency: Duration = Field(0.0, description='a time such as "1.5us"')
    card: str | None = Field(None, description="a name, the same for NICs of one card")
    port: int = Field(1, ge=1, description="a whole number, such as 1")
    numa: int | None = Field(None, ge=0, description="a NUMA node, such as 0")
    capability: int | None = Field(None, ge=0, description="compute capability x 10, such as 90")


class LinkSpec(_Table):
    """`[[link]]`: one cable or bus; both directions have the bandwidth each."""

    source: str = Field(description="the name of a device")
    target: str = Field(description="the name of a device")
    kind: Literal["nvlink", "xgmi", "pcie", "c2c", "socket"] = Field(description="")
    bandwidth: Rate | None = Field(None, description='a rate such as "25GB/s"')
    latency: Duration = Field(0.0, description='a time such as "1.5us"')
    width: int = Field(1, ge=1, le=64, description="lanes or links bundled, such as 16")
    speed: Literal["2.5GT/s", "5GT/s", "8GT/s", "16GT/s", "32GT/s", "64GT/s"] | None = Field(
        None, description=""
    )


class ClusterSpec(_Table):
    """The whole file. `extends` names a preset (or file) that this one changes."""

    name: str = Field("cluster", min_length=1, description="a name")
    nodes: int = Field(1, ge=1, le=MAX_NODES, description="a whole number of machines, such as 4")
    library: Library | None = Field(None, description='a library such as "nccl@2.27.3"')
    price_per_gpu_hour: Price | None = Field(None, description='a price such as "2.95 USD"')
    node: NodeSpec = Field(NodeSpec.model_construct(), description="a table: [node]")
    fabric: FabricSpec | None = Field(None, description="a table: [fabric]")
    device: Annotated[tuple[DeviceSpec, ...], BeforeValidator(_tuple)] = Field(
        (), description="a list of tables: [[device]]"
    )
    link: Annotated[tuple[LinkSpec, ...], BeforeValidator(_tuple)] = Field(
        (), description="a list of tables: [[link]]"
    )


def parse(raw: Mapping[str, Any], where: str, overrides: Iterable[str] = ()) -> ClusterSpec:
    """The checked file; SpecError with one line for each problem otherwise.

    `where` names the file in messages; keys of `overrides` are blamed on the override instead.
    """
    blamed = tuple(overrides)
    problems: dict[str, str] = {}
    try:
        spec = ClusterSpec.model_validate(raw)
    except ValidationError as error:
        wrong = [item["loc"] for item in error.errors()]
        problems = {
            _path(item["loc"]): _blame(_path(item["loc"]), where, blamed) + _line(item)
            for item in error.errors()
        }
        try:  # what is left may have more to say
            spec = ClusterSpec.model_validate(_without(raw, wrong))
        except ValidationError:
            raise SpecError(problems.values()) from None
    for key, text in _cross_checks(spec):
        if not any(key == wrong or key.startswith(f"{wrong}.") for wrong in problems):
            problems[key] = f"{_blame(key, where, blamed)}{key}: {text}"
    if problems:
        raise SpecError(problems.values())
    return spec


def _without(raw: Any, locations: Iterable[tuple[int | str, ...]]) -> Any:
    """A copy of the tables without the values at these places."""
    out = copy.deepcopy(dict(raw))
    for loc in locations:
        at: Any = out
        for piece in loc[:-1]:
            at = at[piece] if isinstance(piece, int) or piece in at else {}
        if isinstance(at, dict):
            at.pop(loc[-1], None)
    return out


def known_keys() -> tuple[str, ...]:
    """Every dotted key of a cluster file that an override may set, tables included."""

    def walk(model: type[BaseModel], prefix: str) -> Iterator[str]:
        for name, field in model.model_fields.items():
            if name in ("device", "link"):
                continue
            yield prefix + name
            table = _table_of(field.annotation)
            if table is not None:
                yield from walk(table, f"{prefix}{name}.")

    return tuple(walk(ClusterSpec, ""))


def gpu_part(spec: ClusterSpec) -> GpuPart:
    """The GPU of the file, cut to a MIG slice where it says so."""
    part = parts.gpu(spec.node.gpu or "")
    return part.slice(spec.node.mig) if spec.node.mig else part


def _table_of(annotation: Any) -> type[BaseModel] | None:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _path(loc: tuple[int | str, ...]) -> str:
    out = ""
    for piece in loc:
        out += f"[{piece}]" if isinstance(piece, int) else f".{piece}" if out else piece
    return out


def _blame(key: str, where: str, overrides: tuple[str, ...]) -> str:
    return "override " if key in overrides else f"{where}: "


def _line(item: Any) -> str:
    """One of pydantic's findings as one of our lines."""
    at, kind, found = _path(item["loc"]), item["type"], item["input"]
    if kind == "extra_forbidden":
        return f"{at}: unknown key{_nearest_key(item['loc'])}"
    if kind == "missing":
        return f"{at}: missing, expected {_expected(item['loc'])}"
    if kind == "value_error":
        return f"{at}: {item['ctx']['error']}"
    if kind == "literal_error":
        expected = f"one of {item['ctx']['expected']}".replace("'", '"')
        return f"{at}: expected {expected}, got {_shown(found)}{_nearest_value(item, found)}"
    return f"{at}: expected {_expected(item['loc'])}, got {_shown(found)}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    text = repr(value)
    return text if len(text) < 60 else f"a {type(value).__name__}"


def _field(loc: tuple[int | str, ...]) -> Any:
    model: type[BaseModel] | None = ClusterSpec
    field = None
    for piece in loc:
        if isinstance(piece, int):
            continue
        if model is None or piece not in model.model_fields:
            break
        field = model.model_fields[piece]
        model = _table_of(field.annotation) or _table_of(
            next(iter(get_args(field.annotation)), None)
        )
    return field


def _expected(loc: tuple[int | str, ...]) -> str:
    field = _field(loc)
    if field is None:
        return "another value"
    if field.description:
        return str(field.description)
    choices = [c for arg in (field.annotation, *get_args(field.annotation)) for c in get_args(arg)]
    texts = [c for c in choices if isinstance(c, str)] or [
        c for c in get_args(field.annotation) if isinstance(c, str)
    ]
    return "one of " + ", ".join(f'"{t}"' for t in texts)


def _nearest_key(loc: tuple[int | str, ...]) -> str:
    model: type[BaseModel] = ClusterSpec
    for piece in loc[:-1]:
        if isinstance(piece, str) and piece in model.model_fields:
            table = _table_of(model.model_fields[piece].annotation)
            if table is not None:
                model = table
    known = sorted(model.model_fields)
    close = difflib.get_close_matches(str(loc[-1]), known, n=1, cutoff=0.6)
    hint = f'; did you mean "{close[0]}"?' if close else ""
    return f"{hint} (known here: {', '.join(known)})"


def _nearest_value(item: Any, found: object) -> str:
    choices = re.findall(r"'([^']*)'", str(item["ctx"]["expected"]))
    close = difflib.get_close_matches(str(found), choices, n=1, cutoff=0.6)
    return f'; did you mean "{close[0]}"?' if close else ""


# What one key says about another.

_Problems = Iterator[tuple[str, str]]


def _cross_checks(spec: ClusterSpec) -> _Problems:
    part, problem = _known_gpu(spec)
    if problem:
        yield "node.gpu", problem
    if spec.device or spec.link:
        yield from _check_graph(spec)
        return
    node = spec.node
    if node.gpus is None:
        yield "node.gpus", "missing, expected a whole number of GPUs, such as 8"
    if node.interconnect is None:
        choices = ", ".join(f'"{c}"' for c in get_args(Interconnect))
        yield "node.interconnect", f"missing, expected one of {choices}"
    if node.nics is not None:
        yield from _check_nics(node.nics)
    yield from _check_cpus(node)
    if part is None or node.gpus is None or node.interconnect is None:
        return
    yield from _check_interconnect(node, part)
    yield from _check_domain(spec, part)


def _known_gpu(spec: ClusterSpec) -> tuple[GpuPart | None, str | None]:
    if spec.node.gpu is None:
        if any(d.kind == "gpu" and d.part for d in spec.device):
            return None, None
        return None, 'missing, expected a GPU of the catalogue, such as "H100-SXM5-80GB"'
    try:
        part = parts.gpu(spec.node.gpu)
        if spec.node.mig:
            part.slice(spec.node.mig)
    except UnknownNameError as error:
        return None, str(error)
    return part, None


def _check_nics(nics: NicsSpec) -> _Problems:
    if nics.part is not None:
        try:
            parts.nic(nics.part)
        except UnknownNameError as error:
            yield "node.nics.part", str(error)
    elif nics.rate is None:
        yield "node.nics.rate", 'missing, expected a rate such as "400Gbit/s", or a `part`'
    if nics.rate == 0:
        yield "node.nics.rate", 'expected a rate above zero such as "400Gbit/s", got 0'
    if nics.count % nics.ports_per_card:
        yield (
            "node.nics.ports_per_card",
            f"expected a divisor of node.nics.count = {nics.count}, got {nics.ports_per_card}",
        )


def _check_cpus(node: NodeSpec) -> _Problems:
    if node.cpu_part is not None:
        try:
            parts.cpu(node.cpu_part)
        except UnknownNameError as error:
            yield "node.cpu_part", str(error)
    if node.gpu_numa is not None and node.gpus is not None and len(node.gpu_numa) != node.gpus:
        yield (
            "node.gpu_numa",
            f"expected a NUMA node for each of {node.gpus} GPUs, got {len(node.gpu_numa)}",
        )


def _suits(part: GpuPart) -> tuple[str, ...]:
    """The interconnects a GPU can have."""
    pcie = ("pcie-switch", "pcie-host") if part.pcie_generation and not part.c2c_count else ()
    if part.vendor == "amd":
        return ("xgmi-mesh", *pcie)
    if part.vendor != "nvidia":
        return pcie
    c2c = ("nvlink-c2c",) if part.c2c_count else ()
    if part.bridge:
        return ("nvlink-pairs", *(("nvlink-mesh",) if part.bridge > 2 else ()), *pcie)
    if part.link_count:
        return ("nvswitch", "nvlink-mesh", "nvlink-pairs", *c2c, *pcie)
    return (*c2c, *pcie)


def _check_interconnect(node: NodeSpec, part: GpuPart) -> _Problems:
    gpus = node.gpus or 0
    suits = _suits(part)
    if node.interconnect not in suits:
        what = ", ".join(f'"{s}"' for s in suits)
        expected = f"expected {'one of ' if len(suits) > 1 else ''}{what}"
        if not suits:
            expected = "none of a cluster file suits it: describe it with [[device]] and [[link]]"
        yield "node.interconnect", f'{part.name} has no "{node.interconnect}"; {expected}'
        return
    if node.interconnect == "nvlink-pairs" and gpus % 2 and gpus > 1:
        yield (
            "node.gpus",
            f"nvlink-pairs joins two by two, expected an even number, got {gpus}",
        )
    if node.interconnect == "xgmi-mesh" and gpus > part.domain and gpus % part.domain:
        yield (
            "node.gpus",
            f"xGMI joins {part.domain} {part.name}; expected up to that or a multiple, got {gpus}",
        )
    cube = part.link_kind == "nvlink2" and gpus == 8  # the hybrid cube mesh of a DGX-1V
    if node.interconnect == "nvlink-mesh" and gpus - 1 > part.link_count and not cube:
        yield (
            "node.gpus",
            f"{part.name} has {part.link_count} NVLinks, too few for a mesh of {gpus};"
            f" expected at most {part.link_count + 1} GPUs",
        )


def default_domain(spec: ClusterSpec, part: GpuPart) -> int:
    """GPUs in one NVLink or xGMI domain where the file does not say: what the parts are sold as."""
    gpus = spec.node.gpus or 1
    kind = spec.node.interconnect
    if spec.node.mig or kind in ("pcie-switch", "pcie-host", "nvlink-c2c"):
        return 1
    if kind == "nvlink-pairs":
        return min(2, gpus)
    if kind == "nvswitch" and part.domain > 16:
        return part.domain
    if kind == "xgmi-mesh":
        return min(gpus, part.domain)
    return gpus


def _check_domain(spec: ClusterSpec, part: GpuPart) -> _Problems:
    gpus = spec.node.gpus or 1
    stated = spec.fabric.scale_up_domain if spec.fabric else None
    domain = stated or default_domain(spec, part)
    if stated and stated % gpus and gpus % stated:
        yield (
            "fabric.scale_up_domain",
            f"expected a multiple of node.gpus = {gpus}, got {stated}",
        )
        return
    if stated and stated > gpus and spec.node.interconnect != "nvswitch":
        yield (
            "fabric.scale_up_domain",
            f'"{spec.node.interconnect}" ends at the machine; expected at most {gpus}, got {stated}'
            ' (or node.interconnect = "nvswitch")',
        )
        return
    per_domain = max(1, domain // gpus)
    domains = -(-spec.nodes // per_domain)
    if spec.node.nics is None and domains > 1:
        yield (
            "node.nics",
            f"missing: {spec.nodes} machines are {domains} NVLink domains or PCIe machines that"
            " nothing joins; expected a [node.nics] table"
            ' (count = 8, rate = "400Gbit/s"), or fewer nodes',
        )


def _check_graph(spec: ClusterSpec) -> _Problems:
    for key in sorted(spec.node.model_fields_set - {"gpu", "p2p"}):
        yield f"node.{key}", "[[device]] and [[link]] describe the machine; leave this key out"
    names = [d.name for d in spec.device]
    for name in sorted({n for n in names if names.count(n) > 1}):
        yield "device", f'name "{name}" is used twice; expected a name of its own for each device'
    if not any(d.kind == "gpu" for d in spec.device):
        yield "device", 'no device of kind "gpu"; expected at least one'
    for i, device in enumerate(spec.device):
        if device.kind == "nic" and device.rate is None:
            yield f"device[{i}].rate", 'missing, expected a rate such as "400Gbit/s"'
        if device.kind == "gpu" and device.part is not None:
            try:
                parts.gpu(device.part)
            except UnknownNameError as error:
                yield f"device[{i}].part", str(error)
    cards = {d.card for d in spec.device if d.card}
    for i, link in enumerate(spec.link):
        for end, name in (("source", link.source), ("target", link.target)):
            if name not in names and name not in cards:
                close = difflib.get_close_matches(name, names, n=1)
                hint = f'; did you mean "{close[0]}"?' if close else ""
                yield f"link[{i}].{end}", f'no device is called "{name}"{hint}'
        if link.bandwidth is None and not (link.kind == "pcie" and link.speed):
            yield (
                f"link[{i}].bandwidth",
                'missing, expected a rate such as "25GB/s" (for kind "pcie" a speed will do)',
            )
        elif link.bandwidth == 0:
            yield f"link[{i}].bandwidth", "expected a rate above zero, got " + format_rate(0.0)
    if spec.nodes > 1 and not any(d.kind == "nic" for d in spec.device):
        yield "device", f'{spec.nodes} machines, but no device of kind "nic"; expected at least one'


__all__ = [
    "ClusterSpec",
    "DeviceSpec",
    "FabricSpec",
    "LinkSpec",
    "NicsSpec",
    "NodeSpec",
    "UnitError",
    "default_domain",
    "gpu_part",
    "known_keys",
    "parse",
]
