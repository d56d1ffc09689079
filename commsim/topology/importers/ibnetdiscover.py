"""An InfiniBand network from the text of `ibnetdiscover`: its switches, hosts and cables.

A block a switch or adapter, a line a connected port; every cable stands in both its ends' blocks:

    Switch  41 "S-b8599f0300fc6de4"     # "MF0;leaf-01:MQM8700/U1" enhanced port 0 lid 3 lmc 0
    [1]     "H-0c42a103008b3bd0"[1](c42a103008b3bd0)    # "node-01 mlx5_0" lid 12 4xHDR

    Ca      1 "H-0c42a103008b3bd0"      # "node-01 mlx5_0"
    [1](c42a103008b3bd0)    "S-b8599f0300fc6de4"[1]     # lid 12 lmc 0 "MF0;leaf-01" lid 3 4xHDR

An adapter belongs to the host that its description names (rdma-ndd sets it to `host device`). A
cable carries lanes x the data rate of one (InfiniBand Trade Association's roadmap,
https://www.infinibandta.org/infiniband-roadmap): what is sold as 4xNDR is 400 Gbit/s. Left out with
a note: adapters without a host's name, and routers. Aggregation nodes (SHARP) are inside switches
and not hosts. The form: `man ibnetdiscover` of rdma-core.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from commsim.errors import SpecError
from commsim.topology.gpu_records import read_text
from commsim.topology.subnet import Host, Port, Run, Subnet
from commsim.units import BytesPerSecond

# Gbit/s of data on one lane, per direction.
LANE = {
    "SDR": 2.0, "DDR": 4.0, "QDR": 8.0, "FDR10": 10.0, "FDR": 13.64, "EDR": 25.0,
    "HDR": 50.0, "NDR": 100.0, "XDR": 200.0,
}  # fmt: skip

_BLOCK = re.compile(r'(Switch|Ca|Rt)\s+\d+\s+"([SHR]-[0-9a-fA-F]+)"\s*(?:#\s*"([^"]*)")?')
_PORT = re.compile(
    r"\[(\d+)\](?:\[ext \d+\])?(?:\([0-9a-fA-F]+\))?\s+"
    r'"([SHR]-[0-9a-fA-F]+)"\[(\d+)\](?:\[ext \d+\])?(?:\([0-9a-fA-F]+\))?\s*(?:#(.*))?$'
)
_SPEED = re.compile(r"\b(\d+)x([A-Z]{3}(?:10)?)\b")
_ADAPTER = re.compile(r"(\S+)\s+(?:HCA-|[a-z]+\d*_|ib[a-z]*)(\d+)\b")
_MAX_PROBLEMS = 10

_End = tuple[str, int]  # "S-..." or "H-...", and the port


@dataclass(slots=True)
class _Device:
    kind: str
    guid: str
    description: str
    line: int
    ports: dict[int, tuple[_End, BytesPerSecond, int]] = field(default_factory=dict)


def read(path: str | Path) -> Subnet:
    """The network that a file with the output of ibnetdiscover describes.

    Raises SpecError with a line for each problem: the line of the file, what was found there, what
    was expected.
    """
    return parse(read_text(path), where=str(path))


def parse(text: str, *, where: str = "ibnetdiscover") -> Subnet:
    """The network that the output of ibnetdiscover describes; the same as `read` for text."""
    problems: list[str] = []
    devices = _devices(text, where, problems)
    if not problems and not any(d.kind == "Switch" for d in devices.values()):
        problems.append(
            f"{where}: no switch; expected the text of ibnetdiscover, with lines such as"
            ' Switch 41 "S-..."'
        )
    cables = [] if problems else _cables(devices, where, problems)
    if problems:
        more = len(problems) - _MAX_PROBLEMS
        shown = problems[:_MAX_PROBLEMS] + ([f"{where}: {more} more problems"] if more > 0 else [])
        raise SpecError(shown)
    return _subnet(devices, cables, where)


def _devices(text: str, where: str, problems: list[str]) -> dict[str, _Device]:
    """Every block by its GUID. Files of several networks, one after another, are one."""
    devices: dict[str, _Device] = {}
    current: _Device | None = None
    for at, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        block = _BLOCK.match(line)
        if block:
            kind, guid, description = block.groups()
            current = devices.setdefault(guid, _Device(kind, guid, description or "", at))
        elif line.startswith("["):
            found = _PORT.match(line)
            speed = _SPEED.findall(found[4] or "") if found else []
            if found is None or not speed or speed[-1][1] not in LANE:
                problems.append(
                    f'{where}: line {at}: expected a port such as [1] "S-..."[5] # "..." 4xHDR'
                    f" with one of {', '.join(LANE)}, got {_short(line)}"
                )
            elif current is None:
                problems.append(f"{where}: line {at}: a port before any Switch or Ca line")
            else:
                lanes, name = speed[-1]
                rate = int(lanes) * LANE[name] * 1e9 / 8
                current.ports[int(found[1])] = ((found[2], int(found[3])), rate, at)
    return devices


def _short(line: str) -> str:
    return repr(line if len(line) <= 60 else line[:57] + "...")


def _cables(
    devices: dict[str, _Device], where: str, problems: list[str]
) -> list[tuple[_End, _End, BytesPerSecond]]:
    """Every cable once; a problem for each whose far end the file does not describe the same."""
    found = []
    for device in devices.values():
        for number, (far, rate, line) in device.ports.items():
            near = (device.guid, number)
            there = devices.get(far[0])
            back = there.ports.get(far[1]) if there else None
            if back is None or back[0] != near:
                tells = f"leads to {back[0][0]}[{back[0][1]}]" if back else "is not in the file"
                problems.append(
                    f"{where}: line {line}: a cable to {far[0]}[{far[1]}], which {tells};"
                    " expected both ends of every cable (is the file cut off?)"
                )
            elif near < far:
                found.append((near, far, min(rate, back[1])))
    return found


def _subnet(
    devices: dict[str, _Device], cables: list[tuple[_End, _End, BytesPerSecond]], where: str
) -> Subnet:
    hosts: dict[str, list[tuple[int, int, _Device]]] = {}
    nameless, aggregation, routers = 0, 0, 0
    for device in devices.values():
        if device.kind == "Rt":
            routers += 1
        elif device.kind == "Ca" and "Aggregation Node" in device.description:
            aggregation += 1
        elif device.kind == "Ca":
            named = _ADAPTER.match(device.description.strip("' "))
            if named is None:
                nameless += 1
                continue
            for port in device.ports:
                hosts.setdefault(named[1], []).append((int(named[2]), port, device))
    names = {d.guid: _switch_name(d) for d in devices.values() if d.kind == "Switch"}
    twice = {n for n in names.values() if list(names.values()).count(n) > 1}
    names = {guid: guid if name in twice else name for guid, name in names.items()}
    found = []
    for host in sorted(hosts, key=_natural):
        ports = []
        for number, port, device in sorted(hosts[host], key=lambda p: (p[0], p[1])):
            vertex = f"{device.guid}[{port}]"
            names[vertex] = vertex
            ports.append(Port(vertex=vertex, number=number, rate=device.ports[port][1]))
        found.append(Host(name=host, ports=tuple(ports)))

    def vertex_of(end: _End) -> str | None:
        return names.get(end[0]) or names.get(f"{end[0]}[{end[1]}]")

    runs = []
    for near, far, rate in cables:
        a, b = vertex_of(near), vertex_of(far)
        if a is not None and b is not None:
            runs.append(Run(source=a, target=b, rate=rate))
    notes = []
    if nameless:
        notes.append(
            f"{where}: {nameless} adapters whose description names no host are left out"
            " (rdma-ndd sets it)"
        )
    if routers:
        notes.append(f"{where}: {routers} routers to other subnets are left out")
    if aggregation:
        notes.append(f"{where}: {aggregation} SHARP aggregation nodes; fabric.sharp uses them")
    return Subnet(
        file=where,
        switches=tuple(names[d.guid] for d in devices.values() if d.kind == "Switch"),
        hosts=tuple(found),
        runs=tuple(runs),
        notes=tuple(notes),
    )


def _switch_name(device: _Device) -> str:
    """What people call a switch: of "MF0;leaf-01:MQM8700/U1" the middle."""
    name = device.description.partition(";")[2] or device.description
    return name.split(":")[0].strip() or device.guid


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """node-2 before node-10."""
    pieces = re.findall(r"\d+|\D+", name)
    return [(p.isdigit(), int(p) if p.isdigit() else 0, p) for p in pieces]
