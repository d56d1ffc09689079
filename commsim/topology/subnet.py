"""Switches, hosts and cables of a real network, as the fabric `cabled` lays them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from commsim.units import BytesPerSecond


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A host's adapter port. number: of the adapter in its host, where the network tells it."""

    vertex: str
    number: int
    rate: BytesPerSecond


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine by its name, with its connected ports in the order of their numbers."""

    name: str
    ports: tuple[Port, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One cable: its two ends (switches, or a host's port) and bytes/s per direction."""

    source: str
    target: str
    rate: BytesPerSecond


@dataclass(frozen=True, slots=True, kw_only=True)
class Subnet:
    """What was discovered. hosts: in the natural order of their names. file: where it was read."""

    file: str
    switches: tuple[str, ...]
    hosts: tuple[Host, ...]
    runs: tuple[Run, ...]
    notes: tuple[str, ...] = ()

    def widened(self, factor: float) -> Subnet:
        """The same with cables between switches that carry `factor` times as much."""
        inner = set(self.switches)
        runs = tuple(
            replace(run, rate=run.rate * factor) if {run.source, run.target} <= inner else run
            for run in self.runs
        )
        return replace(self, runs=runs)

    def with_ports(self, count: int) -> tuple[Host, ...]:
        """The hosts with as many connected ports as a machine has NICs."""
        return tuple(host for host in self.hosts if len(host.ports) == count)
