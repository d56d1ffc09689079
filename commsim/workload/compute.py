"""How long a GPU takes for work: a roofline whose roof was measured.

    products   = sum of 2 m n k (1 + s ramp / k) uneven^wave / (ceiling x matmul)
    attention  = flops x seen / (ceiling x flash)                  fused kernels
               | flops / (ceiling x unfused) + maps x passes / memory     scores written to memory
    traffic    = bytes moved / (memory bandwidth x stream)
    kernels    = launches x gap; where the host waits for each, launches x (gap + waited)
    experts    products in groups reach `grouped` of that
    together   x (1 + variation sqrt(2 ln GPUs)): all wait for the slowest of many (the expected
               largest of normal deviates, at most; Sinha et al., SC'22, "Not All GPUs Are Created
               Equal": GPUs of one kind differ by 2 to 3 %, one standard deviation)
    duration   = max(sum of these, launches x host)

ceiling: the best matrix product measured on the part, or TYPICAL of its data sheet's rate; below
the power that the ceiling was measured at it falls with the cube root of the power limit (dynamic
power goes with frequency times voltage squared, and voltage with frequency). uneven: work of whole
waves of whole tiles (TILE x TILE a block, a block an SM) over the work asked for; inner sums are
cut in s parts where that fills the SMs better (split-K). Tensor cores read 16 bytes at a time:
products of rows that are no multiple of that reach `unaligned` of their rate (NVIDIA, "Matrix
Multiplication Background", section 4). Ignored: clocks that drift, caches, tile shapes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from commsim.topology.parts import GpuPart
from commsim.units import Seconds
from commsim.workload.operations import Core, Matmul, Work

TYPICAL = 0.80
"""Best measured matrix product over the data sheet's dense rate: 0.80 to 0.87 on A100, H100, H200
(ml-engineering's tables, see topologies/parts)."""
TILE = 128
"""Rows and columns of a thread block's tile, as cuBLAS's usual kernels."""
RATED_POWER = {80: 400.0, 90: 700.0, 100: 1000.0}
"""W at which a generation's SXM part, whose ceiling was measured, runs."""
MAP_PASSES = (7.0, 9.0)
"""How often unfused attention reads or writes its maps, forward and backward: scores, scale and
mask, softmax (read and write), dropout (read and write), product."""
GENERATIONS = ((70, "volta"), (75, "turing"), (80, "ampere"), (89, "ada"), (90, "hopper"))


@dataclass(frozen=True, slots=True)
class Device:
    """What of a GPU the cost of work depends on. ceiling, ceiling8: FLOP/s reached in 16 and 8 bit;
    memory: bytes/s."""

    name: str
    generation: str
    ceiling: float
    ceiling8: float
    memory: float
    sms: int


def generation_of(gpu: GpuPart) -> str:
    """The GPU's generation: "volta" ... "hopper", "blackwell", "geforce" ..., "cdna"."""
    if gpu.vendor != "nvidia":
        return "cdna" if gpu.vendor == "amd" else gpu.vendor
    found = "blackwell"
    for capability, name in reversed(GENERATIONS):
        if gpu.capability >= 100:
            break
        if gpu.capability >= capability:
            found = name
            break
    if gpu.capability == 86:
        return "ampere-86"
    return found


@lru_cache(maxsize=1024)
def device(gpu: GpuPart) -> Device:
    """The device of a catalogue's part."""
    sheet, best = dict(gpu.flops), dict(gpu.measured_matmul)
    rate = sheet.get("bfloat16") or sheet.get("float16") or sheet["float32"]
    ceiling = best.get("bfloat16") or best.get("float16") or TYPICAL * rate
    rate8 = sheet.get("float8", rate)
    ceiling8 = best.get("float8") or (ceiling if "float8" not in sheet else TYPICAL * rate8)
    rated = RATED_POWER.get(gpu.capability, 0.0)
    if gpu.tdp and rated and gpu.form.startswith("SXM"):
        slower = min(1.0, (gpu.tdp / rated) ** (1 / 3))
        ceiling, ceiling8 = ceiling * slower, ceiling8 * slower
    return Device(
        name=gpu.name, generation=generation_of(gpu), ceiling=ceiling, ceiling8=ceiling8,
        memory=gpu.memory_bandwidth, sms=gpu.sms or 100,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def slowest(d: Device, gpus: int, variation: float) -> Device:
    """The device that `gpus` of its kind together wait for."""
    slower = 1 + variation * math.sqrt(2 * math.log(gpus))
    return replace(
        d, ceiling=d.ceiling / slower, ceiling8=d.ceiling8 / slower, memory=d.memory / slower
    )


def sheet_rate(gpu: GpuPart, dtype: str) -> float:
    """The data sheet's dense rate for products in this dtype, FLOP/s; without one, 16 bit's."""
    sheet = dict(gpu.flops)
    wide = sheet.get("bfloat16") or sheet.get("float16") or sheet["float32"]
    return sheet.get(dtype) or wide


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of a piece of work by kind; `total` is what passes."""

    products: Seconds = 0.0
    attention: Seconds = 0.0
    traffic: Seconds = 0.0
    kernels: Seconds = 0.0

    @property
    def total(self) -> Seconds:
        return self.products + self.attention + self.traffic + self.kernels

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.products + other.products, self.attention + other.attention,
            self.traffic + other.traffic, self.kernels + other.kernels,
        )  # fmt: skip

    def __mul__(self, factor: float) -> Spent:
        return Spent(
            self.products * factor, self.attention * factor,
            self.traffic * factor, self.kernels * factor,
        )  # fmt: skip


def product_seconds(p: Matmul, d: Device, v: Mapping[str, float], narrow: bool) -> Seconds:
    """One (grouped) matrix product, s."""
    if p.pieces > 1:
        part = replace(p, m=p.m / p.pieces, pieces=1)
        return p.pieces * product_seconds(part, d, v, narrow)
    narrow = narrow and p.narrow
    rate = d.ceiling8 * v["matmul8"] if narrow else d.ceiling * v["matmul"]
    if p.k % 8 or p.n % 8:
        rate *= v["unaligned"]
    if p.grouped:
        rate *= v["grouped"]
    ramp = v["ramp"] * (2 if narrow else 1) / p.k
    bytes_ = 2 * p.elements or (p.m * p.k + p.k * p.n) * (1 if narrow else 2) + 2 * p.m * p.n
    return max(
        p.flops * _loss(p, d.sms, ramp, v["wave"]) / rate,
        p.count * bytes_ / (d.memory * v["stream"]),
    )


def _loss(p: Matmul, sms: int, ramp: float, wave: float) -> float:
    """How many times as long a product takes for its begin and end and its uneven waves."""
    tiles = math.ceil(p.m / TILE) * math.ceil(p.n / TILE) * p.count
    places = TILE * TILE * sms / (p.m * p.n * p.count)

    def loss(parts: int) -> float:
        uneven: float = (math.ceil(tiles * parts / sms) / parts * places) ** wave
        return (1 + ramp * parts) * uneven

    parts = int(sms // tiles)
    return loss(1) if parts < 2 else min(loss(1), loss(parts))


def core_seconds(
    core: Core, d: Device, v: Mapping[str, float], fused: bool, backward: bool
) -> Seconds:
    """Attention's core, s."""
    flops = core.flops * (2.5 if fused else 2.0) if backward else core.flops
    if fused:
        small: float = (min(core.width, 128) / 128) ** v["narrow_head"]
        return flops * core.seen / (d.ceiling * v["flash"] * small)
    passes = MAP_PASSES[backward]
    aligned = 1.0 if core.width % 8 == 0 else v["unaligned"]
    return flops / (d.ceiling * v["unfused"] * aligned) + passes * 2 * core.map / (
        d.memory * v["stream"]
    )


def seconds(
    work: Work,
    d: Device,
    v: Mapping[str, float],
    narrow: bool,
    fused: bool,
    backward: bool,
    waits: bool = False,
) -> Spent:
    """What `work` takes on the device with these constants, s. waits: the host waits for kernels
    and never runs ahead."""
    products = sum(product_seconds(p, d, v, narrow) for p in work.matmuls)
    attention = sum(core_seconds(c, d, v, fused, backward) for c in work.cores)
    moved = work.moved
    if narrow:  # inputs forward and output gradients backward, each once for its two products
        moved += v["cast"] * sum(
            p.m * p.k * p.count for p in work.matmuls if p.narrow and not p.of_weight
        )
    traffic = moved / (d.memory * v["stream"])
    launches = work.launches + (0 if fused else 5 * len(work.cores))
    busy = products + attention + traffic + launches * v["gap"]
    kernels = launches * v["gap"] + max(0.0, launches * v["host"] - busy)
    if waits:
        kernels += launches * v["waited"]
    return Spent(products, attention, traffic, kernels)
