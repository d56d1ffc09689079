"""From a checked cluster file to the machine: PCIe tree, NUMA nodes, NVLink, NICs, in NCCL's order.

What the file leaves open comes from `defaults`; each such choice is a sentence in the notes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations

from commsim.errors import SpecError
from commsim.topology import parts
from commsim.topology.defaults import (
    cpu_part,
    nic_pcie,
    nic_rate,
    numa_of_socket,
    pcie_switches,
    placement,
    sockets,
)
from commsim.topology.mesh import scale_up_pairs
from commsim.topology.node import Cpu, Gpu, Nic, NodeLink, NodeTopology, NvSwitch, PcieSwitch
from commsim.topology.parts import PCIE_SPEED, CpuPart, GpuPart
from commsim.topology.spec import NodeSpec
from commsim.units import format_rate

NVSWITCH = "nvswitch"


@lru_cache(maxsize=256)
def build(
    node: NodeSpec, transport: str = "infiniband", sharp: bool = False
) -> tuple[NodeTopology, tuple[str, ...]]:
    """The machine, and the notes on what was assumed.

    Equal input gives the same object, so that answers kept per machine are found again.
    """
    builder = _Builder(node=node, part=parts.gpu(node.gpu or ""))
    return builder.machine(collnet=sharp and transport == "infiniband"), tuple(builder.notes)


@dataclass(slots=True, kw_only=True)
class _Builder:
    """Collects devices and links of one machine."""

    node: NodeSpec
    part: GpuPart
    notes: list[str] = field(default_factory=list)
    gpus: list[Gpu] = field(default_factory=list)
    nics: list[Nic] = field(default_factory=list)
    switches: list[PcieSwitch] = field(default_factory=list)
    links: list[NodeLink] = field(default_factory=list)
    _address: int = 0x10

    def machine(self, collnet: bool) -> NodeTopology:
        node, part = self.node, self.part
        gpus = node.gpus or 1
        cpu = cpu_part(node, part)
        if node.cpu_part is None and cpu.vendor in ("intel", "amd"):
            self.notes.append(f"node.cpu_part: not stated, {cpu.name} taken")
        per_socket = numa_of_socket(node, part)
        total = sockets(node, part) * per_socket
        n_switches = pcie_switches(node, part)
        switch_of = [g * n_switches // gpus for g in range(gpus)]
        numa_of = self._numa_of_gpus(total, n_switches, switch_of)
        self._scale_up()
        homes = self._nic_homes(numa_of, switch_of, n_switches)
        for numa in sorted({*numa_of, *(h for h in homes if isinstance(h, int))}):
            self._under_cpu(numa, cpu, numa_of, switch_of, n_switches, homes, collnet)
        used = sorted({*numa_of, *(h for h in homes if isinstance(h, int))})
        cpus = tuple(
            Cpu(
                name=f"cpu{numa}",
                numa=numa,
                arch=cpu.arch,
                vendor=cpu.vendor,
                family=cpu.family,
                model=cpu.model,
                part=cpu.name,
            )
            for numa in used
        )
        self._sockets(used, cpu, per_socket)
        allowed = False if node.mig else (part.p2p if node.p2p is None else node.p2p)
        if node.p2p and not part.p2p:
            self.notes.append(f"node.p2p: the stock driver refuses it on {part.name}, yet stated")
        return NodeTopology(
            gpus=tuple(sorted(self.gpus, key=lambda g: g.index)),
            nics=tuple(sorted(self.nics, key=lambda n: n.index)),
            cpus=cpus,
            switches=tuple(self.switches),
            nvswitch=self._nvswitch(part) if self._switched() else None,
            links=tuple(self.links),
            gpu_peer_access=None if allowed else False,
        )

    def _nvswitch(self, part: GpuPart) -> NvSwitch:
        """The machine's chips as one, with what all their ports carry."""
        chips = self.node.nvswitches
        chip = next((s for s in parts.switches() if s.link and s.link == part.link_kind), None)
        if chips is None or chip is None:
            return NvSwitch()
        return NvSwitch(capacity=chips * chip.ports * chip.rate)

    def _switched(self) -> bool:
        return self.node.interconnect == "nvswitch" and not self.node.mig

    def _numa_of_gpus(self, total: int, n_switches: int, switch_of: list[int]) -> list[int]:
        gpus = self.node.gpus or 1
        if self.node.gpu_numa is not None:
            stated = list(self.node.gpu_numa)
            for s in range(n_switches):
                members = {stated[g] for g in range(gpus) if switch_of[g] == s}
                if len(members) > 1:
                    raise SpecError(
                        [
                            f"node.gpu_numa: GPUs of one PCIe switch lie on NUMA nodes"
                            f" {sorted(members)}; expected one (node.pcie_switches = {n_switches})"
                        ]
                    )
            return stated
        if n_switches:
            return [s * total // n_switches for s in switch_of]
        return [g * total // gpus for g in range(gpus)]

    # Links of the scale-up network come first: NCCL meets NVLink before PCIe.

    def _scale_up(self) -> None:
        part, gpus = self.part, self.node.gpus or 1
        if self._switched():
            for g in range(gpus):
                self._link(f"gpu{g}", NVSWITCH, "nvlink", part.link_count)
        kind = "xgmi" if part.link_kind.startswith("xgmi") else "nvlink"
        for (i, j), count in scale_up_pairs(self.node, part).items():
            self._link(f"gpu{i}", f"gpu{j}", kind, count)

    def _link(self, source: str, target: str, kind: str, count: int) -> None:
        bandwidth = count * self.part.link_rate
        self.links.append(
            NodeLink(source=source, target=target, kind=kind, bandwidth=bandwidth, width=count)
        )

    # Where each NIC hangs: a switch by name, or a NUMA node by number.

    def _nic_homes(
        self, numa_of: list[int], switch_of: list[int], n_switches: int
    ) -> list[int | str]:
        nics, gpus = self.node.nics, self.node.gpus or 1
        if nics is None:
            return []
        where = placement(self.node, self.part)
        if nics.placement is None:
            self.notes.append(f'node.nics.placement: not stated, "{where}" taken')
        under_switch = n_switches > 0 and (nics.attach or "") != "root" and where != "per-socket"
        if nics.attach == "switch" and not under_switch:
            raise SpecError(
                [
                    'node.nics.attach: "switch", but no PCIe switch is there; expected'
                    ' node.pcie_switches above 0, or attach = "root"'
                ]
            )
        if where == "per-pcie-switch" and not n_switches:
            self.notes.append(
                f'node.nics.placement: "{self.node.interconnect}" has no PCIe switch;'
                " the NICs hang on the CPU's root ports"
            )
        if where == "per-gpu" and nics.count % gpus and gpus % nics.count:
            self.notes.append(
                f"node.nics: {nics.count} NICs spread as evenly as possible over {gpus} GPUs"
            )
        used = sorted(set(numa_of))
        homes: list[int | str] = []
        for k in range(nics.count):
            if where == "per-gpu":
                g = k * gpus // nics.count
                homes.append(f"pcie{switch_of[g]}" if under_switch else numa_of[g])
            elif where == "per-pcie-switch" and under_switch:
                homes.append(f"pcie{k * n_switches // nics.count}")
            elif where == "single":
                homes.append("pcie0" if under_switch else numa_of[0])
            else:
                homes.append(used[k * len(used) // nics.count])
        return homes

    # One NUMA node: its switches with GPUs and NICs below, GPUs on root ports, NICs on root ports.

    def _under_cpu(
        self,
        numa: int,
        cpu: CpuPart,
        numa_of: list[int],
        switch_of: list[int],
        n_switches: int,
        homes: list[int | str],
        collnet: bool,
    ) -> None:
        name = f"cpu{numa}"
        mine = [g for g, n in enumerate(numa_of) if n == numa]
        for s in dict.fromkeys(switch_of[g] for g in mine) if n_switches else ():
            switch = f"pcie{s}"
            below = [k for k, home in enumerate(homes) if home == switch]
            generation = self._switch_generation(cpu, bool(below))
            self._pcie_switch(switch, name, min(generation, max(cpu.pcie, 3)))
            for g in mine:
                if switch_of[g] == s:
                    self._gpu(g, switch, name, generation)
            for k in below:
                self._nic(k, switch, generation, collnet)
        if not n_switches:
            for g in mine:
                self._gpu(g, name, name, cpu.pcie)
        for k, home in enumerate(homes):
            if home == numa:
                self._nic(k, name, cpu.pcie, collnet)

    def _switch_generation(self, cpu: CpuPart, with_nics: bool) -> int:
        """A switch is of the GPU's generation, or of its NIC's where the CPU offers that too."""
        own = self._gpu_pcie()[0]
        if not with_nics or self.node.nics is None or self.node.pcie is not None:
            return own
        return max(own, min(nic_pcie(self.node.nics)[0], cpu.pcie))

    def _gpu_pcie(self) -> tuple[int, int]:
        return self.node.pcie or (self.part.pcie_generation or 4, self.part.pcie_width or 16)

    def _busid(self) -> str:
        domain, bus = divmod(self._address, 256)
        self._address += 1
        return f"{domain:04x}:{bus:02x}:00.0"

    def _pcie(
        self, source: str, target: str, link: tuple[int, int], bandwidth: float | None = None
    ) -> None:
        generation, width = link
        self.links.append(
            NodeLink(
                source=source,
                target=target,
                kind="pcie",
                bandwidth=bandwidth or parts.pcie_bandwidth(generation, width),
                width=width,
                speed=PCIE_SPEED[generation],
            )
        )

    def _pcie_switch(self, name: str, parent: str, generation: int) -> None:
        self.switches.append(PcieSwitch(name=name, busid=self._busid()))
        self._pcie(name, parent, (generation, 16))

    def _gpu(self, g: int, parent: str, cpu: str, limit: int) -> None:
        node, part = self.node, self.part
        generation, width = self._gpu_pcie()
        link = (generation if node.pcie else min(generation, limit), width)
        fabric = None if node.pcie or part.c2c_count else part.host_bandwidth
        own = parts.pcie_bandwidth(generation, width)
        host = fabric if fabric and abs(fabric - own) > 0.01 * own else None
        if node.mig is None:
            self.gpus.append(self._record(g, f"gpu{g}", part.name))
            self._pcie(f"gpu{g}", parent, link, host)
            if part.c2c_count:
                self.links.append(
                    NodeLink(
                        source=f"gpu{g}",
                        target=cpu,
                        kind="c2c",
                        bandwidth=part.c2c_count * part.c2c_rate,
                        width=part.c2c_count,
                    )
                )
            return
        # Slices share the GPU's link to the host: they hang under a bridge of their own.
        profile = next(p for p in part.mig_profiles if p.name == node.mig)
        self.switches.append(PcieSwitch(name=f"die{g}", busid=self._busid()))
        self._pcie(f"die{g}", parent, link, host)
        for i in range(profile.instances):
            index = g * profile.instances + i
            self.gpus.append(self._record(index, f"gpu{index}", f"{part.name}:{node.mig}"))
            self._pcie(f"gpu{index}", f"die{g}", link, host)

    def _record(self, index: int, name: str, part: str) -> Gpu:
        return Gpu(
            name=name,
            index=index,
            part=part,
            capability=self.part.capability,
            gpudirect=self.part.gpudirect,
            busid=self._busid(),
        )

    def _nic(self, k: int, parent: str, limit: int, collnet: bool) -> None:
        nics = self.node.nics
        if nics is None:
            return
        card, port = divmod(k, nics.ports_per_card)
        rate = nic_rate(nics)
        if port == 0:
            generation, width = nic_pcie(nics)
            link = (generation if nics.pcie else min(generation, limit), width)
            if parts.pcie_bandwidth(*link) < rate * nics.ports_per_card:
                self.notes.append(
                    f"nic{k}: PCIe gen{link[0]} x{width} carries"
                    f" {format_rate(parts.pcie_bandwidth(*link))}, less than its ports"
                )
            self._pcie(f"card{card}", parent, link)
        self.nics.append(
            Nic(
                name=f"nic{k}",
                index=k,
                card=f"card{card}",
                rate=rate,
                gpudirect=nics.gpudirect,
                port=port + 1,
                guid=f"0x{0xA0000000 + 0x100 * card:x}",
                collnet=collnet,
                part=nics.part or "",
                busid=self._busid() if port == 0 else self.nics[-1].busid,
            )
        )

    def _sockets(self, used: list[int], cpu: CpuPart, per_socket: int) -> None:
        """Every two NUMA nodes see each other; those of two sockets share the sockets' links."""
        for a, b in combinations(used, 2):
            if a // per_socket == b // per_socket:
                bandwidth = cpu.numa_bandwidth or cpu.socket_bandwidth
            else:
                bandwidth = cpu.socket_bandwidth / per_socket
            if bandwidth:
                self.links.append(
                    NodeLink(source=f"cpu{a}", target=f"cpu{b}", kind="socket", bandwidth=bandwidth)
                )
