"""NCCL's paths against those its own code finds, and the rules one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commsim.libraries.nccl import paths, settings, system
from commsim.libraries.nccl.graph import PathType
from commsim.libraries.nccl.paths import Path, Paths
from commsim.libraries.nccl.system import System
from commsim.topology.node import NodeTopology
from tests.libraries.nccl import machines
from tests.libraries.nccl.machines import COMPUTED, computed


def _paths(
    node: NodeTopology,
    hosts: int = 1,
    gpus: int = 0,
    version: tuple[int, int] = (2, 30),
    env: tuple[tuple[str, str], ...] = (),
) -> tuple[System, Paths]:
    local = tuple(range(gpus or len(node.gpus)))
    read = settings.read(env, version, collnet=False)
    built = system.build(node, (local,) * hosts, version, tuple(range(len(node.nics))))
    return built, paths.compute(built, read)


def _place(built: System, node: NodeTopology, kind: str, label: str) -> int:
    if kind == "gpu":
        return next(i for i, g in enumerate(built.gpus) if g.rank == int(label))
    host, number = (int(part, 16) for part in label.split("-"))
    if kind == "net":
        wanted = host * len(node.nics) + number
        return next(i for i, n in enumerate(built.nets) if n.nic == wanted)
    for i, v in enumerate(built.cpus):
        cpu = built.vertices[v].cpu
        if cpu is not None and (built.vertices[v].host, cpu.numa) == (host, number):
            return i
    raise AssertionError(label)


@pytest.mark.parametrize("name", sorted({r["machine"] for r in computed("nccl_paths.csv")}))
def test_every_path_is_nccls(name: str) -> None:
    node, hosts, gpus = COMPUTED[name]
    built, found = _paths(node, hosts, gpus)
    for row in computed("nccl_paths.csv"):
        if row["machine"] != name:
            continue
        table: list[list[Path]] = getattr(found, f"{row['from_type']}_{row['to_type']}")
        reached = table[_place(built, node, row["from_type"], row["from"])]
        expected = dict(each.split(":", 1) for each in row["paths"].split())
        for label, text in expected.items():
            path = reached[_place(built, node, row["to_type"], label)]
            got = f"{path.type.name}:{path.bandwidth / 1000:g}:{path.hops}"
            assert got == text, (row, label)
        unreached = sum(p.type == PathType.DIS for p in reached)
        assert unreached == len(reached) - len(expected)


def test_cube_mesh_relays_over_one_gpu_unless_forbidden() -> None:
    # GPU 0 has no NVLink to 5, 6 and 7 (section 1.3: NVB)
    _, found = _paths(machines.dgx_1v())
    assert [found.gpu_gpu[0][g].type for g in (5, 6, 7)] == [PathType.NVB] * 3
    _, found = _paths(machines.dgx_1v(), env=(("NCCL_NVB_DISABLE", "1"),))
    # the CPUs' 6 GB/s are then all there is, and the NICs' 12 GB/s are better
    assert [found.gpu_gpu[0][g].type for g in (5, 6, 7)] == [PathType.NET] * 3
    assert [found.gpu_gpu[0][g].bandwidth for g in (5, 6, 7)] == [6000] * 3


def test_pxn_reaches_a_far_nic_through_its_gpu() -> None:
    _, found = _paths(machines.dgx_h100(), version=(2, 27))
    assert found.gpu_net[0][3].type == PathType.PXN
    assert found.gpu_net[0][3].via == 3
    _, found = _paths(machines.dgx_h100(), version=(2, 27), env=(("NCCL_PXN_DISABLE", "1"),))
    assert found.gpu_net[0][3].type == PathType.PHB  # two switches of one socket
    assert found.gpu_net[0][7].type == PathType.SYS


def test_without_gpudirect_data_goes_through_the_host() -> None:
    node = machines.dgx_h100()
    node = replace(node, nics=tuple(replace(n, gpudirect=False) for n in node.nics))
    _, found = _paths(node)
    assert found.gpu_net[0][0].type == PathType.PHB
    assert found.net_gpu[0][0].type == PathType.PHB


@pytest.mark.parametrize(
    ("version", "bandwidth"), [((2, 18), 20.0), ((2, 19), 20.0), ((2, 20), 20.6), ((2, 30), 20.6)]
)
def test_hopper_nvlink_counts_by_version(version: tuple[int, int], bandwidth: float) -> None:
    _, found = _paths(machines.dgx_h100(), version=version)
    assert found.gpu_gpu[0][1].bandwidth == pytest.approx(18 * bandwidth * 1000)


def test_fewest_hops_first_before_2_30_and_nearest_type_from_2_30() -> None:
    # GB200: GPU to NIC over C2C and the CPU's PCIe; both rules reach it, at the NIC's PCIe rate
    for version in ((2, 27), (2, 30)):
        _, found = _paths(machines.gb200_tray(), version=version)
        assert found.gpu_net[0][0].type == PathType.P2C
        assert found.gpu_net[0][0].bandwidth == 48_000
    _, found = _paths(machines.gb200_tray(), version=(2, 25))
    assert found.gpu_net[0][0].type == PathType.PHB


def test_peers_that_the_network_serves_better_part_into_islands() -> None:
    # Two sockets of Ice Lake: 10 GB/s between them, while every GPU has a 24 GB/s NIC beside it, so
    # that NCCL sends from socket to socket over the network.
    groups = [machines.Group(i // 2, (2 * i, 2 * i + 1), (i,)) for i in range(4)]
    node = machines.machine(groups, 89, machines.INTEL_ICELAKE, gen=16.0, rate_gbit=200)
    built, found = _paths(node)
    read = settings.read((), (2, 30), collnet=False)
    assert paths.islands(built, found, read) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    read = settings.read((("NCCL_NET_DISABLE_INTRA", "1"),), (2, 30), collnet=False)
    assert len(paths.islands(built, paths.compute(built, read), read)) == 1


def test_a_mesh_of_pcie_gpus_talks_through_memory_where_the_driver_refuses() -> None:
    node = machines.refused(machines.pair(machines.AMD_ROME, 89, where="switch"))
    _, found = _paths(node)
    assert found.gpu_gpu[0][1].type == PathType.PHB
    _, found = _paths(machines.pair(machines.AMD_ROME, 89, where="switch"))
    assert found.gpu_gpu[0][1].type == PathType.PIX
