"""What a transport does to messages between machines: latencies and thresholds that are public."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from commsim.errors import LibraryError
from commsim.libraries.nccl.buffers import SLOTS
from commsim.units import Bytes, BytesPerSecond, Seconds

LATENCY: Final[dict[str, Seconds]] = {
    "infiniband": 1.5e-6,
    "roce": 3.0e-6,
    "slingshot": 2.0e-6,
    "efa-v1": 15.5e-6,
    "efa-v2": 11.0e-6,
    "efa-v3": 7.0e-6,
    "tcp": 25e-6,
    "tcpx": 25e-6,
    "tcpxo": 15e-6,
}
"""s of a small message from host to host, one way, over three switches.

InfiniBand: 1.0 to 1.1 us with MPI (MVAPICH's published osu_latency, HDR) and three switches of 0.13
to 0.25 (QM8700, QM9700 product briefs). RoCE: the same adapters and three Ethernet switches of 0.6
to 0.8 us (data sheets of Spectrum and Tomahawk systems). Slingshot: 1.8 to 2 us (De Sensi et al.,
SC20, arXiv:2008.08886). EFA: 15.5 us at its launch (AWS, 2019); the second generation about 30 %
less, the third 35 % less again (AWS, announcements of p5 and p5en). TCP through the kernel: 20 to
30 us. TCPX is kernel TCP; TCPXO keeps the transport on the NIC, and lies between that and EFA. From
memory, pages not read again."""

MESSAGES: Final[dict[str, float]] = {"efa-v1": 3.0}
"""Messages that pass one after another before one message of NCCL has arrived, where it is not one.
EFA's first generation sends by rendezvous: announced, asked for, sent (aws-ofi-nccl, protocol
SENDRECV); from the second on it is written at once (protocol RDMA)."""

CXI_COPY_THRESHOLD: Final[Bytes] = 4096
"""FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD's default (libfabric, man fi_cxi)."""


OFF: Final = ("0", "false", "no", "off")
"""How libfabric reads that something is off (man fabric)."""

CXI_INJECTED: Final[Bytes] = 192
"""Bytes that a command of the CXI adapter carries itself (libfabric, prov/cxi: the payload of an
immediate data command); longer messages are read by the adapter."""


def latency(transport: str) -> Seconds:
    """s of the transport's own messages that a message of NCCL needs, 0 where nothing is known."""
    return LATENCY.get(transport, 0.0) * MESSAGES.get(transport, 1.0)


def efa(family: str, rate: BytesPerSecond) -> str:
    """EFA's generation: 1 up to p4d, 2 on p5 (100 Gbit/s cards behind Hopper), 3 on p5en and p6
    (from 200 Gbit/s)."""
    if rate > 20e9:
        return "efa-v3"
    return "efa-v2" if family in ("hopper", "blackwell") else "efa-v1"


def copied(
    transport: str,
    vendor: str,
    message: float,
    messages: float,
    env: tuple[tuple[str, str], ...],
) -> float:
    """How far libfabric's CXI provider has the GPU's driver copy a connection's LL messages of
    `message` bytes on the wire (0 .. 1): those that the host handles, as their receive is found in
    software or has not been posted, past the size up to which the CPU stores into the GPU; all of
    them without GDRCopy. NVIDIA only: AMD GPUs let the CPU store into all of their memory. NCCL
    posts as many receives ahead as a buffer has slots; of more `messages` some come too early."""
    early = matched_in_software(transport, env) or messages > SLOTS
    if transport != "slingshot" or vendor != "nvidia" or not early:
        return 0.0
    given = dict(env)
    if given.get("FI_HMEM_CUDA_USE_GDRCOPY", "1").strip().lower() in OFF:
        return 1.0
    ratio = (message / _threshold(given) / 1.5) ** 4
    return float(ratio / (1 + ratio))


def _threshold(given: Mapping[str, str]) -> Bytes:
    """CXI's copy threshold, at least 1 byte. Raises LibraryError where it is no number."""
    name = "FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD"
    text = given.get(name, str(CXI_COPY_THRESHOLD)).strip()
    if not (text.isascii() and text.isdigit()):
        raise LibraryError(
            f"{name}: found {text!r}, expected a whole number of bytes; correct or unset it"
        )
    return max(1, int(text))


def injected(transport: str, vendor: str, attach: str, message: float) -> float:
    """1 where libfabric's CXI provider puts a message of `message` bytes into the command itself,
    for which the host first reads it out of the GPU's memory, else 0. NVIDIA GPUs behind PCIe only:
    AMD's, and those that share a coherent link with the CPU, let it read their memory."""
    slow = vendor == "nvidia" and attach != "c2c"
    return float(transport == "slingshot" and slow and message <= CXI_INJECTED)


def flushed(transport: str, family: str) -> float:
    """1 where a read by libfabric follows every message, so that it is in the GPU's memory:
    NVIDIA's before Hopper (NCCL, src/graph/paths.cc, ncclTopoNeedFlush). With verbs the adapter
    reads from itself beside other work; sockets do not write into GPUs."""
    libfabric = transport == "slingshot" or transport.startswith("efa")
    return float(libfabric and family in ("volta", "turing", "ampere", "ada"))


def matched_in_software(transport: str, env: tuple[tuple[str, str], ...]) -> float:
    """1 where libfabric's CXI provider finds the receive of a message in software
    (FI_CXI_RX_MATCH_MODE; its default is the adapter), else 0."""
    mode = dict(env).get("FI_CXI_RX_MATCH_MODE", "hardware").strip().lower()
    return float(transport == "slingshot" and mode == "software")


def socket_threads(env: tuple[tuple[str, str], ...]) -> int:
    """Threads that copy through the kernel's sockets for one NIC: NCCL_SOCKET_NTHREADS (1 to 16,
    as NCCL reads it), else one, which NCCL's user guide has for networks below 100 Gbit/s."""
    given = dict(env).get("NCCL_SOCKET_NTHREADS", "").strip()
    return min(max(int(given), 1), 16) if given.isascii() and given.isdigit() else 1
