"""The keys of the cluster file and what each may hold, as pydantic models.

A cluster file is TOML, or a dict of the same shape. Quantities are text with a unit; a bare number
is refused with an example. What one key says about another is checked in `spec_checks`, and
`spec_problems.parse` reports every problem at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from commsim.topology import parts
from commsim.topology.parts import GpuPart
from commsim.units import parse_rate, parse_time

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
FabricKind = Literal[
    "rail-optimized", "fat-tree", "single-switch", "dragonfly", "torus", "direct", "cabled"
]
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
    how many switches the GPUs hang under (0: root ports). nvswitches: NVSwitch chips of a machine
    whose NVLinks end in it; left out, they block nothing. mig: every GPU is cut into slices of
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
    nvswitches: int | None = Field(
        None, ge=1, le=256, description="a whole number of chips, such as 4"
    )
    mig: str | None = Field(None, description='a MIG profile such as "1g.10gb"')
    nics: NicsSpec | None = Field(None, description="a table: [node.nics]")


class FabricSpec(_Table):
    """`[fabric]`: what joins the machines.

    cabling: a file with what ibnetdiscover printed of a network that exists; kind is then "cabled",
    and without `nodes` every host of the file is a machine.
    """

    kind: FabricKind = Field("rail-optimized", description="")
    transport: Transport = Field("infiniband", description="")
    oversubscription: float = Field(1.0, ge=1.0, le=1024, description="a number from 1.0 up")
    sharp: bool = Field(False, description="true or false")
    cabling: str | None = Field(
        None, min_length=1, description='a file of ibnetdiscover, such as "fabric.txt"'
    )
    scale_up_domain: int | None = Field(
        None, ge=1, le=1 << 20, description="GPUs in one NVLink domain, such as 8 or 72"
    )


class DeviceSpec(_Table):
    """`[[device]]`: one vertex of an explicit machine. rate: a NIC's; of a switch what it passes on
    in all, each byte once (left out: it blocks nothing).
    """

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


def known_keys() -> tuple[str, ...]:
    """Every dotted key of a cluster file that an override may set, tables included."""

    def walk(model: type[BaseModel], prefix: str) -> Iterator[str]:
        for name, field in model.model_fields.items():
            if name in ("device", "link"):
                continue
            yield prefix + name
            table = table_of(field.annotation)
            if table is not None:
                yield from walk(table, f"{prefix}{name}.")

    return tuple(walk(ClusterSpec, ""))


def gpu_part(spec: ClusterSpec) -> GpuPart:
    """The GPU of the file, cut to a MIG slice where it says so."""
    part = parts.gpu(spec.node.gpu or "")
    return part.slice(spec.node.mig) if spec.node.mig else part


def table_of(annotation: Any) -> type[BaseModel] | None:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None
