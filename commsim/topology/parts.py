"""The catalogue of parts: GPUs, NICs, switches, CPUs and links, each number with its source.

Read from `topologies/parts/*.toml` beside the package, or from the copy inside an installed wheel.
Rates are those of one direction; a GPU's scale-up bandwidth is links x rate per link, never the sum
of both directions that data sheets print.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

from commsim.errors import SpecError, UnknownNameError
from commsim.units import Bytes, BytesPerSecond, Seconds, parse_rate, parse_size, parse_time

# PCIe: transfer rate of a lane in GT/s by generation (PCI Express Base Specifications).
PCIE_SPEED = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}

_DTYPES = {
    "float": "float32",
    "fp32": "float32",
    "double": "float64",
    "half": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "tf32": "tfloat32",
    "fp8": "float8",
    "fp4": "float4",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """A slice of a GPU: its SMs, its eighths of the memory, how many of it one GPU can hold."""

    name: str
    sms: int
    memory_eighths: int
    instances: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPart:
    """One GPU model; rates in bytes/s of one direction, flops in FLOP/s of dense products.

    link_kind: nvlink2 ... nvlink5, xgmi, "" for none. domain: GPUs that one scale-up network
    joins as sold (8, 72). bridge: GPUs that NVLink bridges join (2 or 4; 0: no bridge). p2p: does
    the driver allow peer-to-peer over PCIe. multicast: can NVSwitch reduce for it (NVLS).
    capability: compute capability x 10 (0: not NVIDIA). sms: 0 where not stated.
    """

    name: str
    aliases: tuple[str, ...] = ()
    vendor: str = "nvidia"
    form: str = ""
    year: int = 0
    capability: int = 0
    sms: int = 0
    memory: Bytes = 0
    memory_type: str = ""
    memory_bandwidth: BytesPerSecond = 0.0
    flops: tuple[tuple[str, float], ...] = ()
    measured_matmul: tuple[tuple[str, float], ...] = ()
    link_kind: str = ""
    link_count: int = 0
    link_rate: BytesPerSecond = 0.0
    c2c_count: int = 0
    c2c_rate: BytesPerSecond = 0.0
    pcie_generation: int = 0
    pcie_width: int = 0
    host_bandwidth: BytesPerSecond = 0.0
    domain: int = 1
    bridge: int = 0
    mesh: str = ""
    p2p: bool = True
    gpudirect: bool = True
    multicast: bool = False
    mig_profiles: tuple[MigProfile, ...] = ()
    tdp: float = 0.0
    source: str = ""
    note: str = ""

    @property
    def scale_up_bandwidth(self) -> BytesPerSecond:
        """Bytes/s one GPU can send into its scale-up network (NVLink, xGMI), one direction."""
        return self.link_count * self.link_rate

    @property
    def sxm(self) -> bool:
        """Is it a board module or superchip (NVLink without bridges)?"""
        return self.link_count > 0 and self.bridge == 0

    def peak_flops(self, dtype: str) -> float | None:
        """FLOP/s of dense matrix products in `dtype` by the data sheet; None: not stated."""
        return dict(self.flops).get(_dtype(dtype))

    def measured_flops(self, dtype: str) -> float | None:
        """FLOP/s of the best matrix product published for the part; None where none is known."""
        return dict(self.measured_matmul).get(_dtype(dtype))

    def slice(self, profile: str) -> GpuPart:
        """What one MIG slice looks like: fewer SMs, less memory, no NVLink, no peer-to-peer."""
        known = {p.name: p for p in self.mig_profiles}
        if profile not in known:
            raise UnknownNameError(f"MIG profile of {self.name}", profile, known)
        mig = known[profile]
        share, memory = mig.sms / self.sms, mig.memory_eighths / 8
        return replace(
            self,
            name=f"{self.name}:{profile}",
            aliases=(),
            sms=mig.sms,
            memory=int(self.memory * memory),
            memory_bandwidth=self.memory_bandwidth * memory,
            flops=tuple((d, f * share) for d, f in self.flops),
            measured_matmul=tuple((d, f * share) for d, f in self.measured_matmul),
            link_kind="",
            link_count=0,
            link_rate=0.0,
            domain=1,
            bridge=0,
            p2p=False,
            multicast=False,
            mig_profiles=(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NicPart:
    """One network adapter; rate of one port in bytes/s of one direction."""

    name: str
    aliases: tuple[str, ...] = ()
    vendor: str = ""
    rate: BytesPerSecond = 0.0
    ports: int = 1
    pcie_generation: int = 0
    pcie_width: int = 0
    transports: tuple[str, ...] = ()
    source: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchPart:
    """One switch; rate of one port in bytes/s of one direction; latency in s (0: not stated)."""

    name: str
    aliases: tuple[str, ...] = ()
    vendor: str = ""
    kind: str = ""
    ports: int = 0
    rate: BytesPerSecond = 0.0
    latency: Seconds = 0.0
    link: str = ""
    multicast: bool = False
    sharp: bool = False
    source: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPart:
    """One link generation; rate of one link or lane in bytes/s of one direction."""

    name: str
    aliases: tuple[str, ...] = ()
    rate: BytesPerSecond = 0.0
    speed_gt: float = 0.0
    source: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuPart:
    """One CPU generation; bandwidths in bytes/s of one direction."""

    name: str
    aliases: tuple[str, ...] = ()
    vendor: str = ""
    arch: str = "x86_64"
    family: int = 0
    model: int = 0
    pcie: int = 0
    socket_bandwidth: BytesPerSecond = 0.0
    numa_bandwidth: BytesPerSecond = 0.0
    source: str = ""
    note: str = ""


def topologies_folder() -> Path:
    """The folder of presets and parts: inside an installed wheel, else beside the package."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "_topologies"
    return installed if installed.is_dir() else package.parent / "topologies"


def gpu(name: str) -> GpuPart:
    """The GPU of that name or alias, in any case; `NAME:1g.10gb` is a MIG slice."""
    base, _, profile = name.partition(":")
    part = _find("GPU", base, _gpus())
    return part.slice(profile) if profile else part


def nic(name: str) -> NicPart:
    """The NIC of that name or alias."""
    return _find("NIC", name, _nics())


def switch(name: str) -> SwitchPart:
    """The switch of that name or alias."""
    return _find("switch", name, _switches())


def link(name: str) -> LinkPart:
    """The link generation of that name or alias."""
    return _find("link", name, _links())


def cpu(name: str) -> CpuPart:
    """The CPU generation of that name or alias."""
    return _find("CPU", name, _cpus())


def gpus() -> tuple[GpuPart, ...]:
    """Every GPU of the catalogue."""
    return tuple(_gpus().values())


def nics() -> tuple[NicPart, ...]:
    """Every NIC of the catalogue."""
    return tuple(_nics().values())


def switches() -> tuple[SwitchPart, ...]:
    """Every switch of the catalogue."""
    return tuple(_switches().values())


def links() -> tuple[LinkPart, ...]:
    """Every link generation of the catalogue."""
    return tuple(_links().values())


def cpus() -> tuple[CpuPart, ...]:
    """Every CPU generation of the catalogue."""
    return tuple(_cpus().values())


def pcie_bandwidth(generation: int, width: int) -> BytesPerSecond:
    """Bytes/s of a PCIe link in one direction, after line coding: lanes x rate per lane."""
    return link(f"pcie{generation}").rate * width


def parse_pcie(text: str) -> tuple[int, int]:
    """(generation, lanes) from `gen5 x16`."""
    match = re.fullmatch(r"\s*gen\s*([1-6])\s*x\s*(1|2|4|8|16)\s*", str(text), re.IGNORECASE)
    if not match:
        raise ValueError(f'expected a PCIe link such as "gen5 x16", got {text!r}')
    return int(match[1]), int(match[2])


def _dtype(dtype: str) -> str:
    name = dtype.lower().removeprefix("torch.")
    return "float8" if name.startswith("float8") else _DTYPES.get(name, name)


def _key(name: str) -> str:
    return re.sub(r"[\s_/()-]+", "", name.lower())


class _Named(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def aliases(self) -> tuple[str, ...]: ...


_Part = TypeVar("_Part", bound=_Named)


_CATALOGUES = {
    "GPU": "gpus", "NIC": "nics", "switch": "switches", "link": "links", "CPU": "cpus",
}  # fmt: skip


def _find(kind: str, name: str, known: Mapping[str, _Part]) -> _Part:
    if name in known:
        return known[name]
    wanted = _key(name)
    for part in known.values():
        if wanted in map(_key, (part.name, *part.aliases)):
            return part
    raise UnknownNameError(kind, name, known, f"commsim names {_CATALOGUES[kind]}")


@cache
def _tables(pattern: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    """(file name, parsed TOML) of the catalogue's files."""
    folder = topologies_folder() / "parts"
    found = tuple(
        (path.name, tomllib.loads(path.read_text("utf-8"))) for path in sorted(folder.glob(pattern))
    )
    if not found:
        raise SpecError([f"{folder}: no {pattern} here; expected the parts catalogue: reinstall"])
    return found


def _flops(table: Mapping[str, str]) -> tuple[tuple[str, float], ...]:
    return tuple(
        (dtype, float(text.removesuffix("TFLOP/s")) * 1e12) for dtype, text in table.items()
    )


def _gpu(name: str, table: dict[str, Any], mig: Mapping[str, Any]) -> GpuPart:
    raw = dict(table)
    cable, c2c = raw.pop("link", None), raw.pop("c2c", None)
    generation, width = parse_pcie(raw.pop("pcie")) if "pcie" in raw else (0, 0)
    host = raw.pop("host_bandwidth", None)
    profiles = mig[raw.pop("mig")] if "mig" in raw else {}
    return GpuPart(
        name=name,
        aliases=tuple(raw.pop("aliases", ())),
        memory=parse_size(raw.pop("memory")),
        memory_bandwidth=parse_rate(raw.pop("memory_bandwidth")),
        flops=_flops(raw.pop("flops")),
        measured_matmul=_flops(raw.pop("measured_matmul", {})),
        link_kind=cable["kind"] if cable else "",
        link_count=cable["count"] if cable else 0,
        link_rate=parse_rate(cable["rate"]) if cable else 0.0,
        c2c_count=c2c["count"] if c2c else 0,
        c2c_rate=parse_rate(c2c["rate"]) if c2c else 0.0,
        pcie_generation=generation,
        pcie_width=width,
        host_bandwidth=parse_rate(host) if host else _host(generation, width, c2c),
        tdp=float(raw.pop("tdp", "0W").removesuffix("W")),
        mig_profiles=tuple(MigProfile(name=k, **v) for k, v in profiles.items()),
        **raw,
    )


def _host(generation: int, width: int, c2c: Mapping[str, Any] | None) -> BytesPerSecond:
    if c2c:
        return float(c2c["count"]) * parse_rate(c2c["rate"])
    return pcie_bandwidth(generation, width) if generation else 0.0


@cache
def _gpus() -> dict[str, GpuPart]:
    return {
        name: _gpu(name, raw, table.get("mig", {}))
        for _, table in _tables("gpus*.toml")
        for name, raw in table["gpu"].items()
    }


def _plain(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a simple part: lists to tuples, text with a unit to base units."""
    out: dict[str, Any] = {}
    for key, value in raw.items():
        if key == "pcie" and isinstance(value, str):
            out["pcie_generation"], out["pcie_width"] = parse_pcie(value)
        elif key == "rate" or key.endswith("bandwidth"):
            out[key] = parse_rate(value)
        elif key == "latency":
            out[key] = parse_time(value)
        else:
            out[key] = tuple(value) if isinstance(value, list) else value
    return out


def _read(pattern: str, kind: str) -> dict[str, dict[str, Any]]:
    return {name: _plain(raw) for _, table in _tables(pattern) for name, raw in table[kind].items()}


@cache
def _nics() -> dict[str, NicPart]:
    return {name: NicPart(name=name, **raw) for name, raw in _read("nics*.toml", "nic").items()}


@cache
def _switches() -> dict[str, SwitchPart]:
    found = _read("switches*.toml", "switch")
    return {name: SwitchPart(name=name, **raw) for name, raw in found.items()}


@cache
def _links() -> dict[str, LinkPart]:
    return {name: LinkPart(name=name, **raw) for name, raw in _read("links*.toml", "link").items()}


@cache
def _cpus() -> dict[str, CpuPart]:
    return {name: CpuPart(name=name, **raw) for name, raw in _read("cpus*.toml", "cpu").items()}
