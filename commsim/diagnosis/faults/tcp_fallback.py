"""TCP sockets instead of the network that was meant: no plug-in, no verbs, the wrong interface."""

from __future__ import annotations

from collections.abc import Iterator

from commsim.diagnosis.alter import nics_capped, nics_kept, over, staged, with_constant
from commsim.diagnosis.evidence import SHOWN, Clue, Evidence
from commsim.diagnosis.fault import Fault, Setup, Variant
from commsim.units import format_rate

SLOWER = (12.5e9, 3.125e9, 1.25e9)
"""Bytes/s of the Ethernet ports that a machine has beside its fast NICs: 100, 25, 10 Gbit/s."""

SOCKETS = (
    (0.6, 1.0, 0.15), (1.0, 1.0, 0.25), (1.6, 1.0, 0.25), (2.5, 1.0, 0.1),
    (1.0, 6.0, 0.1), (1.6, 6.0, 0.15),
)  # fmt: skip
"""What the sockets of a NIC carry, over the profile's figure for one thread and socket, and how
often: NCCL_SOCKET_NTHREADS x NCCL_NSOCKS_PERTHREAD is 1 by default, up to 16 on the clouds that
NCCL knows (NCCL user guide, environment variables), and kernels and CPUs differ. Then how many
times as long a hop takes: in a virtual machine a message passes two kernels more. Published runs:
1 to 2 times on bare metal, 6 in a virtual machine."""


def variants(setup: Setup) -> Iterator[Variant]:
    """Sockets over all NICs or one of them, or over one slower port."""
    cluster = setup.cluster
    if not setup.networked or cluster.fabric.transport == "tcp":
        return
    sockets = staged(over(cluster, "tcp"))
    count, rate = len(cluster.node.nics), max(nic.rate for nic in cluster.node.nics)
    ways = [(count, rate, 0.5), *([(1, rate, 0.2)] if count > 1 else [])]
    slower = [most for most in SLOWER if most < rate]
    ways += [(1, most, 0.3 / len(slower)) for most in slower]
    ports = [(nics_capped(nics_kept(sockets, kept), most), kept, most, share)
             for kept, most, share in ways]  # fmt: skip
    for speed, hops, part in SOCKETS:
        profile = setup.profile
        if setup.nccl:
            profile = with_constant(profile, "socket", speed)
        for carrying, kept, most, share in ports:
            port = f"{kept} port{'s' * (kept > 1)} of {format_rate(most)}"
            late = f", {hops:g} times the latency" if hops > 1 else ""
            yield Variant(
                detail=f"sockets over {port}, {speed:g} times as fast as usual{late}",
                share=share * part, cluster=carrying, library=setup.library, profile=profile,
                hops=hops,
            )  # fmt: skip


def clues(evidence: Evidence, setup: Setup) -> Iterator[Clue]:
    """A log that names sockets for it, one that names another network against it."""
    yield from evidence.told("sockets")
    for name, off in (("NCCL_IB_DISABLE", "1"), ("NCCL_NET", "Socket")):
        if evidence.set_to(name) == off:
            yield Clue(text=f"NCCL log: {name}={off} is set")
    networks = evidence.log.networks if evidence.log else ()
    if networks and not any("Socket" in name for name in networks):
        yield Clue(text=f"NCCL log: the network is {networks[0]}", factor=1 / SHOWN)


FAULT = Fault(
    cause="tcp_fallback",
    what="TCP sockets carry the traffic instead of RDMA or the provider's plug-in",
    check="NCCL_DEBUG=INFO says 'Using network Socket' or NET/Socket; ibv_devinfo shows no "
    "active port; the plug-in (libnccl-net.so) is not in LD_LIBRARY_PATH",
    fix="install the verbs libraries or the network plug-in in the container, pass "
    "/dev/infiniband, unset NCCL_IB_DISABLE and NCCL_NET, name the fast ports in NCCL_IB_HCA or "
    "NCCL_SOCKET_IFNAME",
    incidents=(
        "argonne-lcf/alcf-nccl-tests, Polaris, environments 1 and 2",
        "skypilot-org/skypilot, examples/gcp_gpu_direct_tcpx",
    ),
    variants=variants,
    clues=clues,
    settings=frozenset({"NCCL_IB_DISABLE", "NCCL_NET", "NCCL_SOCKET_IFNAME"}),
)
