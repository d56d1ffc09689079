"""Builds a layout out of network namespaces, veth pairs, bridges and tc tbf, and takes it down.

    rank 0's namespace: eth0 ==veth== p0 :bridge b0: u0 ==veth== c0 :bridge core: ...

Every link is shaped at both ends, so that what many ranks send to one is held to its rate as well.
All bridges lie in a namespace of their own: nothing of the machine's own network is touched, labs
do not see one another, and a lab is gone when its namespaces are.
"""

from __future__ import annotations

import fcntl
import math
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from commsim.errors import CommsimError
from commsim.units import Bytes, BytesPerSecond
from validation.lab.layout import Layout, burst, gso

PREFIX = "commsim-lab-"
MTU = 9000
LOCK = Path(tempfile.gettempdir()) / "commsim-lab.lock"
QUEUE = "8mb"  # tbf's limit: TCP's windows are below it, so nothing is ever dropped

# reno: no pacing (bbr needs fq) and no surprises on a link without loss. tcp_limit_output_bytes:
# else a library's small control messages wait behind megabytes in the sender's own queue.
SETTINGS = {
    "net.ipv4.tcp_congestion_control": "reno",
    "net.ipv4.tcp_slow_start_after_idle": "0",
    "net.ipv4.tcp_no_metrics_save": "1",
    "net.ipv4.tcp_limit_output_bytes": "131072",
    "net.ipv4.tcp_wmem": "4096\t65536\t524288",
}


class LabError(CommsimError, RuntimeError):
    """The lab cannot be built or a run in it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A lab that stands. namespaces: one a rank, in order."""

    layout: Layout
    namespaces: tuple[str, ...]

    def address(self, rank: int) -> str:
        return address(rank)

    def inside(self, rank: int) -> list[str]:
        """What to put before a command so that it runs as this rank."""
        return ["ip", "netns", "exec", self.namespaces[rank]]


def address(rank: int) -> str:
    """A rank's IPv4 address."""
    return f"10.77.0.{rank + 1}"


def rank_of(ip: str) -> int | None:
    """The rank that has this address, None for any other."""
    head, _, last = ip.rpartition(".")
    return int(last) - 1 if head == "10.77.0" else None


@lru_cache(maxsize=1)
def refusal() -> str:
    """Why this machine cannot run the lab, "" if it can: tried, not guessed."""
    if os.geteuid() != 0:
        return "the lab needs root (network namespaces and tc)"
    name, probe = f"{PREFIX}{os.getpid()}-probe", "probe"
    try:
        _run(["ip", "netns", "add", name])
        _run(["ip", "-n", name, "link", "add", probe, "type", "veth", "peer", "name", "other"])
        _run(["ip", "-n", name, "link", "add", "bridge0", "type", "bridge"])
        _run(["tc", "-n", name, *_shape(probe, 1e6)])
        _run(["ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv4.tcp_no_metrics_save=1"])
    except (OSError, LabError) as error:
        return f"the lab needs ip netns, veth, bridges and tc tbf: {error}"
    finally:
        _delete(name)
    return ""


@contextmanager
def network(layout: Layout) -> Iterator[Network]:
    """The layout as a network that stands while the block runs, whatever ends the block.

    SIGTERM ends it like Ctrl-C. One lab at a time on a machine, lest they measure each other: a
    second one waits. Raises LabError where it cannot be built.
    """
    if why := refusal():
        raise LabError(why)
    base = f"{PREFIX}{os.getpid()}"
    ranks = tuple(f"{base}-r{i}" for i in range(layout.n))
    switches = f"{base}-switches"
    before = signal.signal(signal.SIGTERM, _interrupt)
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            _build(layout, ranks, switches)
            yield Network(layout=layout, namespaces=ranks)
        finally:
            held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
            for name in (*ranks, switches):
                _delete(name)
            signal.signal(signal.SIGTERM, before)
            signal.pthread_sigmask(signal.SIG_SETMASK, held)


def clean() -> tuple[str, ...]:
    """Deletes what labs left behind whose process is gone (kill -9, power), and returns the
    names."""
    left = []
    for line in _run(["ip", "netns", "list"]).splitlines():
        name = line.split()[0] if line.split() else ""
        found = re.fullmatch(rf"{PREFIX}(\d+)-.*", name)
        if found and not os.path.exists(f"/proc/{found[1]}"):
            _delete(name)
            left.append(name)
    return tuple(left)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _build(layout: Layout, ranks: tuple[str, ...], switches: str) -> None:
    _run(["ip", "netns", "add", switches])
    for name in ranks:
        _run(["ip", "netns", "add", name])
    steps, shapes = ["link add core type bridge", "link set core up"], []
    for machine in range(layout.machines if layout.uplink else 0):
        steps += [f"link add b{machine} type bridge", f"link set b{machine} up"]
        steps += [f"link add u{machine} type veth peer name c{machine}"]
        for end, bridge in ((f"u{machine}", f"b{machine}"), (f"c{machine}", "core")):
            steps += _end(end, layout.uplink, bridge)
            shapes += [_shape(end, layout.uplink)]
    for rank, name in enumerate(ranks):
        bridge = f"b{rank // layout.per_machine}" if layout.uplink else "core"
        steps += [f"link add p{rank} type veth peer name eth0 netns {name}"]
        steps += _end(f"p{rank}", layout.link, bridge)
        shapes += [_shape(f"p{rank}", layout.link)]
    _batch(["ip", "-n", switches], steps)
    _batch(["tc", "-n", switches], [" ".join(shape) for shape in shapes if shape])
    for rank, name in enumerate(ranks):
        own = ["link set lo up", f"addr add {address(rank)}/24 dev eth0"]
        _batch(["ip", "-n", name], own + _end("eth0", layout.link, ""))
        if shape := _shape("eth0", layout.link):
            _run(["tc", "-n", name, *shape])
        _tune(name)


def _end(name: str, rate: BytesPerSecond, bridge: str) -> list[str]:
    """One end of a veth pair: large frames, large packets, its bridge."""
    steps = [f"link set {name} mtu {MTU} gso_max_size {gso(rate)}"]
    return (
        steps + ([f"link set {name} master {bridge}"] if bridge else []) + [f"link set {name} up"]
    )


def _shape(device: str, rate: BytesPerSecond) -> list[str]:
    """tc's arguments that hold what leaves a device to a rate; none for an infinite one."""
    if math.isinf(rate):
        return []
    bits, most = f"{rate * 8:.0f}bit", burst(rate)
    tbf = ["tbf", "rate", bits, "burst", str(most), "limit", QUEUE]
    return ["qdisc", "add", "dev", device, "root", *tbf]


def _tune(name: str) -> None:
    """TCP's settings of a namespace; LabError where one did not take."""
    inside = ["ip", "netns", "exec", name, "sysctl"]
    _run([*inside, "-qw", *(f"{key}={value}" for key, value in SETTINGS.items())])
    found = _run([*inside, "-n", *SETTINGS]).splitlines()
    for (key, wanted), got in zip(SETTINGS.items(), found, strict=True):
        if got.split() != wanted.split():
            raise LabError(f"{name}: {key}: set to {wanted!r}, reads {got!r}; is it allowed here?")


def _delete(name: str) -> None:
    """Ends what still runs in a namespace, then removes it; silent where there is none."""
    pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
    for pid in pids.stdout.split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            continue
    subprocess.run(["ip", "netns", "del", name], capture_output=True)


def _batch(command: list[str], steps: list[str]) -> None:
    _run([*command, "-batch", "-"], "\n".join(steps) + "\n")


def _run(command: list[str], text: str | None = None) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"{' '.join(command)}: {done.stderr.strip() or 'failed'}")
    return done.stdout


def sent_bytes(device: str) -> Bytes:
    """Bytes that a device of this namespace has sent since it was made."""
    with open(f"/sys/class/net/{device}/statistics/tx_bytes", encoding="ascii") as file:
        return int(file.read())
