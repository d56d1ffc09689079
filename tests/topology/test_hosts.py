"""Machines without GPUs from a cluster file: ranks on CPUs, for Gloo and MPI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import commsim
from commsim.errors import CommsimError, SpecError
from commsim.libraries.lookup import library
from commsim.topology.hosts import loopback

HOSTS: dict[str, Any] = {
    "name": "my-hosts", "nodes": 4, "library": "gloo", "node": {"gpu": "CPU", "gpus": 8,
    "nics": {"count": 2, "rate": "25Gbit/s"}},
    "fabric": {"kind": "fat-tree", "transport": "tcp", "oversubscription": 2.0},
}  # fmt: skip


def test_ranks_on_the_cpus_of_several_machines() -> None:
    made = commsim.load_cluster(HOSTS)
    assert (made.n_ranks, made.nodes, made.default_library) == (32, 4, "gloo")
    assert [nic.rate for nic in made.node.nics] == [3.125e9, 3.125e9]
    assert made.fabric.transport == "tcp"
    assert made.notes == ()
    # eight NICs fit one leaf: two machines with two of them each face the other two
    assert made.cut_bandwidth(tuple(range(16)), tuple(range(16, 32))) == pytest.approx(12.5e9)


@pytest.mark.parametrize("name", ["gloo", "mpi"])
def test_what_it_predicts_is_bound_by_its_network(name: str) -> None:
    """A ring of four machines' one rank each sends 2 (n-1)/n of its buffer through its port."""
    spec = HOSTS | {"library": name, "node": {"gpu": "cpu", "gpus": 1, "nics": {
        "count": 1, "rate": "1Gbit/s"}}, "fabric": {"kind": "single-switch"}}  # fmt: skip
    asked = commsim.Collective("all_reduce", nbytes=256 << 20)
    least = 2 * 3 / 4 * (256 << 20) / 125e6
    found = commsim.predict(asked, commsim.load_cluster(spec)).duration
    assert least < found < 1.25 * least


def test_what_is_not_stated_is_taken_and_noted() -> None:
    made = commsim.load_cluster({"node": {"gpu": "CPU", "gpus": 2}})
    assert made.default_library == "gloo"
    assert made.notes == ("library: not stated, gloo taken",)
    assert made.node == loopback(2, "gloo").node
    several = commsim.load_cluster({
        "nodes": 2, "library": "mpi",
        "node": {"gpu": "CPU", "gpus": 2, "nics": {"count": 1, "rate": "10Gbit/s"}},
    })  # fmt: skip
    assert (several.fabric.kind, several.fabric.transport) == ("single-switch", "tcp")
    assert several.notes == (
        'fabric.kind: not stated, "single-switch" taken',
        'fabric.transport: not stated, "tcp" taken',
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"node.gpus": None}, "node.gpus: missing, expected how many ranks a machine runs"),
        ({"node.nics": None}, "node.nics: missing, expected count and rate of each machine"),
        ({"node.nics.rate": None}, "node.nics.rate: missing, expected a rate such as"),
        ({"node.nics.part": "ConnectX-7"}, "node.nics.part: says nothing of ranks on CPUs"),
        ({"node.interconnect": "nvswitch"}, "node.interconnect: says nothing of ranks on CPUs"),
        ({"library": "nccl@2.27.3"}, 'library: expected "gloo" or "mpi" for ranks on CPUs'),
        ({"fabric.kind": "cabled"}, "fabric.kind: expected a fabric such as"),
    ],
)
def test_what_makes_no_sense_is_one_line(change: dict[str, Any], expected: str) -> None:
    with pytest.raises(SpecError, match=expected) as found:
        commsim.load_cluster(HOSTS, **change)
    assert len(found.value.problems) == 1


@pytest.mark.parametrize(("name", "who"), [("nccl@2.27.3", "NCCL"), ("rccl@2.27.7", "RCCL")])
def test_gpu_libraries_want_gpus(name: str, who: str) -> None:
    asked = commsim.Collective("all_reduce", nbytes=1 << 20)
    with pytest.raises(CommsimError, match=f"{who} needs .* and CPU is not one; use gloo or mpi"):
        commsim.predict(asked, commsim.load_cluster(HOSTS), library(name))


def test_measurements_of_it_calibrate_and_validate(tmp_path: Path) -> None:
    """What the harness would write of two machines with two ranks each."""
    path = tmp_path / "hosts.toml"
    path.write_text(
        'nodes = 2\nlibrary = "gloo"\n[node]\ngpu = "CPU"\ngpus = 2\n'
        '[node.nics]\ncount = 1\nrate = "10Gbit/s"\n'
    )
    machine = commsim.load_cluster(path)
    slow = [
        commsim.Measurement(c, duration=1.5 * commsim.predict(c, machine).duration, cluster=machine)
        for c in (commsim.Collective("all_reduce", nbytes=4**k) for k in range(6, 13))
    ]
    profile = commsim.calibrate(slow)
    for m in slow:
        found = commsim.predict(m.collective, machine, profile=profile).duration
        assert found == pytest.approx(m.duration, rel=0.03)
