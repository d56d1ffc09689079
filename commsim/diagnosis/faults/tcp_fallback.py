"""TCP sockets instead of the network that was meant: no plug-in, no verbs, the wrong interface."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from commsim.diagnosis.alter import (
    nics_capped,
    nics_kept,
    over,
    staged,
    with_constant,
    with_tag,
)
from commsim.diagnosis.evidence import SHOWN, Clue, Evidence
from commsim.diagnosis.fault import Fault, Setup, Variant
from commsim.units import format_rate

SLOWER = (12.5e9, 3.125e9, 1.25e9)
"""Bytes/s of the Ethernet ports that a machine has beside its fast NICs: 100, 25, 10 Gbit/s."""

SPEEDS = ((0.8, 0.5), (1.6, 0.5))
"""What the sockets of a NIC carry, over the profile's figure for one thread and socket, and how
often: NCCL_SOCKET_NTHREADS x NCCL_NSOCKS_PERTHREAD is 1 by default, up to 16 on the clouds that
NCCL knows (NCCL user guide, environment variables), and kernels and CPUs differ."""

HOPS = ((1.0, 0.75), (6.0, 0.25))
"""How many times a hop takes TCP's latency (commsim/cost/transport.py), and how often: in a virtual
machine a message passes two kernels more. Published runs: once on bare metal, 6 times in a virtual
machine. Not what the profile has learnt: of its few machines with sockets each took its own time,
40 times as long on one as on another, which says nothing of a machine that was to have none."""

UNSURE = (("hops", 0.5), ("transfer", 0.35))
"""Standard deviations of ln beside these ways. Hops: kernels, interrupt moderation, wake-ups.
Bytes: a kernel thread copies 2 to 5 GB/s (with SPEEDS as much as that)."""


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
    for (speed, fast), (hops, late) in product(SPEEDS, HOPS):
        profile = setup.profile
        if setup.nccl:
            profile = with_constant(profile, "socket", speed)
            profile = with_tag(profile, "wire", "transport", "tcp", hops)
        for carrying, kept, most, share in ports:
            port = f"{kept} port{'s' * (kept > 1)} of {format_rate(most)}"
            words = f", {hops:g} times the latency" if hops > 1 else ""
            yield Variant(
                detail=f"sockets over {port}, {speed:g} times as fast as usual{words}",
                share=share * fast * late, cluster=carrying, library=setup.library,
                profile=profile, hops=1.0 if setup.nccl else hops, unsure=UNSURE,
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
