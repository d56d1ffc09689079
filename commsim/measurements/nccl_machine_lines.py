"""Messages of an NCCL log about the machine: versions, plugins, NICs, affinity, settings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from commsim.measurements import nccl_facts as facts
from commsim.measurements.nccl_facts import Fact
from commsim.measurements.nccl_messages import Message
from commsim.measurements.nccl_reader import State, at, reads


@reads(r"NCCL version (\d[\w.-]{0,40})(?:\+cuda(\d[\w.]{0,20}))?")
def version(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    yield at(line, facts.Version, what="nccl", version=m[1])
    if m[2]:
        yield at(line, facts.Version, what="cuda_runtime", version=m[2])


def _cuda(number: str) -> str:
    """13.1 of 13010."""
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}"


@reads(r"cudaDriverVersion (\d{4,6})|.{0,40}CUDA driver version (\d{4,6}) with runtime (\d{4,6})")
def driver(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    yield at(line, facts.Version, what="cuda_driver", version=_cuda(m[1] or m[2]))
    if m[3]:
        yield at(line, facts.Version, what="cuda_runtime", version=_cuda(m[3]))


@reads(r"(?:Using network|Assigned NET plugin) (.{1,100}?)(?: to comm)?\s*$")
def used(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    yield at(line, facts.Plugin, kind="used", name=m[1])


@reads(r"NET/Plugin ?: Loaded (net|collnet|coll) plugin (.{1,100}?)\s*$")
def plugin(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    yield at(line, facts.Plugin, kind="net" if m[1] == "net" else "collnet", name=m[2])


_PLUGIN_KINDS = {
    "P2P plugin": "p2p", "Plugin Path": "path", "Could not find": "missing",
    "Failed to find": "missing", "Failed to initialize NET plugin": "failed",
}  # fmt: skip


@reads(
    r"(?:\w+/Plugin ?: )?(P2P plugin|Plugin Path|Could not find|Failed to find"
    r"|Failed to initialize NET plugin) ?:? (.{1,200})"
)
def plugin_part(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    kind, name = _PLUGIN_KINDS[m[1]], m[2].strip()
    name = name.split()[0].rstrip(".,") if kind == "missing" and name else name
    yield at(line, facts.Plugin, kind=kind, name=name)


@reads(
    r"(?:NET/OFI )?(?:Using (Libfabric) version|Initializing (aws-ofi-nccl)|(Plugin) version ?:)"
    r" (\S{1,60})"
)
def plugin_version(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    what = (m[1] or m[2] or m[3]).lower().replace("-", "_")
    yield at(line, facts.Version, what=what, version=m[4])


@reads(
    r"(?:\w+: Affinity for GPU (\d{1,4}) is ([\w,-]{1,400})"
    r"|Setting affinity for GPU (\d{1,4}) to ([\w,-]{1,400}))"
)
def affinity(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    yield at(line, facts.Affinity, gpu=int(m[1] or m[3]), cpus=m[2] or m[4])


_NIC = re.compile(
    r"\[(\d{1,4})\]=?\{?(?:\[\d+\] ?)?([^\s:\[\]{},;]{1,80})(?::([^\s\[\]{},;]{1,80}))?"
)


@reads(r"NET/([\w ]{1,40}?) ?: Using (\[\d.{0,20000})")
def nics(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    for nic in _NIC.finditer(m[2].split(" OOB ")[0]):
        port, _, kind = (nic[3] or "").partition("/")
        address = not port.isdecimal() or len(port) > 4
        yield at(
            line, facts.Nic, network=m[1], index=int(nic[1]), name=nic[2],
            port=None if address else int(port), link="" if address else kind.split("/")[0],
            sharp=not address and kind.endswith("SHARP"),
        )  # fmt: skip


@reads(
    r"NET/IB ?: \[(\d{1,4})\] ([^\s:]{1,80}):[^\s:]{1,80}:(\d{1,4})/(\w+)\b"
    r".{0,40}? speed=(\d{1,9})\b"
)
def nic_speed(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    yield at(
        line, facts.Nic, network="IB", index=int(m[1]), name=m[2], port=int(m[3]), link=m[4],
        bandwidth=int(m[5]) * 1e6 / 8,
    )  # fmt: skip


@reads(r"NET/IB ?: Made virtual device \[(\d{1,4})\] name=(\S{1,200}) speed=(\d{1,9})\b")
def nic_joined(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    yield at(
        line, facts.Nic, network="IB", index=int(m[1]), name=m[2], bandwidth=int(m[3]) * 1e6 / 8
    )


@reads(r"(?:NET/\w+ ?: )?GPU Direct RDMA (Enabled|Disabled) for (.{1,120})")
def gpudirect(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    yield at(line, facts.GpuDirect, subject=m[2].strip(), enabled=m[1] == "Enabled")


@reads(r"(NCCL_\w{1,80}) set by environment to (.{0,1000})")
def setting(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    value = m[2].strip()
    if re.fullmatch(r"-?\d+\.", value):  # NCCL ends its sentence only after a number
        value = value[:-1]
    yield at(line, facts.Setting, name=m[1], value=value)


@reads(
    r"NVLS multicast support is (not )?available on dev (\d{1,4})"
    r"(?: \(NVLS_NCHANNELS (\d{1,4})\))?"
)
def multicast(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    channels = int(m[3]) if m[3] else None
    yield at(line, facts.Multicast, gpu=int(m[2]), available=not m[1], channels=channels)


_REMARKS = (
    ("topology", re.compile(r"Topology detection ?: could not|KV Convert to int ?: could not")),
    ("peer", re.compile(r"Check P2P Type|P2P is disabled|.{0,200}P2P.{0,40}not (?:possible|supp)")),
    ("network", re.compile(r"NET/\w+ ?: No device found|Connected all rings, use ring PXN"
                           r"|NET/OFI (?:Selected|Support)|DMA-BUF|Bootstrap ?: Using|MNNVL ")),
    ("collnet", re.compile(r".{0,200}(?:CollNet|SHARP|COLLNET)")),
    ("nvls", re.compile(r"NVLS")),
)  # fmt: skip


@reads("")
def remark(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    for kind, pattern in _REMARKS:
        if pattern.match(line.text):
            yield at(line, facts.Remark, kind=kind, text=line.text.strip()[:400])
            return
