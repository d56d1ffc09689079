"""What a kernel takes on the cluster's GPU, in s: the roofline of a training step's prediction.

    duration = product, attention or bytes moved, as workload/compute.py has them, + gap

with the constants that were fitted for eager PyTorch (stack "ddp" of workload/profiles), so that a
matrix product costs the same in `commsim run` as in `commsim step`. In other types than 16 bit the
rate is that of the data sheet over the one in 16 bit, the bytes those of the type. Ignored: what
caches and fused kernels save.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from commsim.topology.cluster import Cluster
from commsim.topology.parts import GpuPart
from commsim.units import Bytes, Seconds
from commsim.workload import compute
from commsim.workload.compute import Device
from commsim.workload.layout import Layout
from commsim.workload.operations import Core, Matmul
from commsim.workload.trust import shipped, tags_of

WIDTH = 2  # bytes of an element for which workload/compute.py counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """A GPU and its constants. rates: over the device's, by dtype. launch: s the host takes for a
    kernel.
    """

    device: Device
    values: Mapping[str, float]
    rates: Mapping[str, float]
    launch: Seconds

    def product(self, p: Matmul, dtype: str, itemsize: int) -> Seconds:
        """s of a matrix product."""
        narrow = itemsize == 1 and dtype.startswith("float8")
        device = self.device if narrow else self._in(dtype, itemsize)
        return compute.product_seconds(p, device, self.values, narrow) + self.values["gap"]

    def attention(self, core: Core, backward: bool, dtype: str, itemsize: int) -> Seconds:
        """s of a fused kernel of attention."""
        device = self._in(dtype, itemsize)
        return compute.core_seconds(core, device, self.values, True, backward) + self.values["gap"]

    def moving(self, nbytes: Bytes) -> Seconds:
        """s of a kernel that does no more than read and write."""
        return nbytes / (self.device.memory * self.values["stream"]) + self.values["gap"]

    def _in(self, dtype: str, itemsize: int) -> Device:
        return replace(
            self.device, ceiling=self.device.ceiling * self.rates.get(dtype, 1.0),
            memory=self.device.memory * WIDTH / itemsize,
        )  # fmt: skip


def roofline(cluster: Cluster, ranks: int) -> Roofline:
    """The roofline of the cluster's GPU, of which `ranks` wait for each other."""
    values = shipped().values(tags_of(cluster, Layout(framework="ddp")))
    device = compute.device(cluster.gpu)
    return Roofline(
        device=compute.slowest(device, max(1, ranks), values["variation"]), values=values,
        rates=_rates(cluster.gpu, device), launch=values["host"],
    )  # fmt: skip


def _rates(gpu: GpuPart, device: Device) -> dict[str, float]:
    """Attainable FLOP/s by dtype, over the 16-bit ceiling."""
    sheet = dict(gpu.flops)
    wide = compute.sheet_rate(gpu, "bfloat16")
    found = {
        dtype: (gpu.measured_flops(dtype) or 0.0) / device.ceiling or rate / wide
        for dtype, rate in sheet.items()
    }
    found.setdefault("float32", min(found.values()))
    return found | {"float16": 1.0, "bfloat16": 1.0}
