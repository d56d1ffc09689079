"""What transports add to a message, and which generation of EFA a machine has."""

from __future__ import annotations

import pytest

from commsim.collectives.collective import Collective
from commsim.cost.features import machine
from commsim.cost.transport import (
    LATENCY,
    MESSAGES,
    copied,
    efa,
    flushed,
    injected,
    latency,
    matched_in_software,
    socket_threads,
)
from commsim.errors import LibraryError
from commsim.libraries.nccl.nccl import Nccl
from commsim.prediction import predict
from commsim.topology.load import load_cluster
from commsim.topology.wiring import SWITCH_LATENCY


@pytest.mark.parametrize(
    ("preset", "name"),
    [
        ("aws-p3dn", "efa-v1"), ("aws-p4d", "efa-v1"), ("aws-p4de", "efa-v1"),
        ("aws-p5", "efa-v2"),
        ("aws-p5en", "efa-v3"), ("aws-p6-b200", "efa-v3"), ("gcp-a3-high", "tcpx"),
        ("gcp-a3-mega", "tcpxo"),
        ("gcp-a3-ultra", "roce"), ("polaris", "slingshot"), ("dgx-h100", "infiniband"),
    ],
)  # fmt: skip
def test_every_transport_of_a_preset_has_a_latency(preset: str, name: str) -> None:
    cluster = load_cluster(preset, nodes=2)
    facts = Nccl().choose(Collective("all_reduce", nbytes=8), cluster).facts
    assert machine(cluster, facts).net_name == name  # type: ignore[arg-type]
    assert latency(name) > 0


def test_a_latency_covers_the_switches_on_its_way() -> None:
    for transport, s in LATENCY.items():
        assert s >= 3 * SWITCH_LATENCY.get(transport, 0.0)


def test_efa_grows_faster_with_each_generation() -> None:
    assert latency("efa-v1") == pytest.approx(3 * 15.5e-6)  # announced, asked for, sent
    assert latency("efa-v1") > latency("efa-v2") > latency("efa-v3")
    assert set(MESSAGES) <= set(LATENCY)
    assert efa("volta", 12.5e9) == efa("ampere", 12.5e9) == "efa-v1"
    assert efa("hopper", 12.5e9) == "efa-v2"
    assert efa("hopper", 25e9) == efa("blackwell", 50e9) == "efa-v3"


SOFTWARE = (("FI_CXI_RX_MATCH_MODE", "software"),)


def test_only_long_messages_of_nvidia_gpus_over_slingshot_are_copied_by_the_driver() -> None:
    assert copied("slingshot", "nvidia", 128.0, 1.0, SOFTWARE) < 1e-3
    assert copied("slingshot", "nvidia", 1.5 * 4096, 1.0, SOFTWARE) == pytest.approx(0.5)
    assert copied("slingshot", "nvidia", 1e6, 1.0, SOFTWARE) > 0.999
    raised = (*SOFTWARE, ("FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD", "16777216"))
    assert copied("slingshot", "nvidia", 1e6, 1.0, raised) < 1e-3
    assert copied("slingshot", "amd", 1e6, 1.0, SOFTWARE) == 0.0
    assert copied("infiniband", "nvidia", 1e6, 1.0, SOFTWARE) == 0.0
    without = (*SOFTWARE, ("FI_HMEM_CUDA_USE_GDRCOPY", "0"))
    assert copied("slingshot", "nvidia", 8.0, 1.0, without) == 1.0
    assert copied("slingshot", "amd", 8.0, 1.0, without) == 0.0
    off = (*SOFTWARE, ("FI_HMEM_CUDA_USE_GDRCOPY", " Off "))
    assert copied("slingshot", "nvidia", 8.0, 1.0, off) == 1.0


@pytest.mark.parametrize("text", ["abc", "", "-1", "4K", "4096.5"])
def test_a_threshold_that_is_no_number_is_refused_by_name(text: str) -> None:
    env = (*SOFTWARE, ("FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD", text))
    with pytest.raises(LibraryError, match="FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD: found"):
        copied("slingshot", "nvidia", 1e6, 1.0, env)
    zero = (*SOFTWARE, ("FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD", "0"))
    assert copied("slingshot", "nvidia", 16.0, 1.0, zero) > 0.999  # the smallest LL line


def test_the_adapter_delivers_what_is_awaited_and_eight_messages_are() -> None:
    assert copied("slingshot", "nvidia", 1e6, 8.0, ()) == 0.0
    assert copied("slingshot", "nvidia", 1e6, 9.0, ()) > 0.999
    assert copied("slingshot", "nvidia", 8.0, 8.0, (("FI_HMEM_CUDA_USE_GDRCOPY", "0"),)) == 0.0


def test_short_messages_go_inside_the_command_and_the_host_reads_them() -> None:
    assert injected("slingshot", "nvidia", "root", 192.0) == 1.0
    assert injected("slingshot", "nvidia", "root", 193.0) == 0.0
    assert injected("slingshot", "nvidia", "c2c", 8.0) == 0.0
    assert injected("slingshot", "amd", "root", 8.0) == injected("efa-v2", "nvidia", "root", 8) == 0


def test_who_matches_receives_is_said_in_the_environment() -> None:
    assert matched_in_software("slingshot", (("FI_CXI_RX_MATCH_MODE", "software"),)) == 1.0
    assert matched_in_software("slingshot", (("FI_CXI_RX_MATCH_MODE", "hybrid"),)) == 0.0
    assert matched_in_software("slingshot", ()) == 0.0
    assert matched_in_software("infiniband", (("FI_CXI_RX_MATCH_MODE", "software"),)) == 0.0


@pytest.mark.parametrize(
    ("given", "threads"), [(None, 1), ("4", 4), ("0", 1), ("99", 16), ("many", 1), ("-3", 1)]
)
def test_socket_threads(given: str | None, threads: int) -> None:
    assert socket_threads((("NCCL_SOCKET_NTHREADS", given),) if given else ()) == threads


def test_sockets_bind_fast_networks_until_they_have_threads() -> None:
    """The guide has four threads for 100 Gbit/s; 10 Gbit/s are filled by one."""

    def bandwidth(rate: str, **env: str) -> float:
        tcp = {"node.nics.rate": rate, "node.nics.count": 1, "fabric.transport": "tcp"}
        cluster = load_cluster("dgx-a100", nodes=2, **tcp)
        library = Nccl(env={"NCCL_ALGO": "Ring", **env})
        p = predict(Collective("all_gather", nbytes=1 << 30), cluster, library)
        assert ("sockets" in p.bottleneck) is (rate == "100Gbit/s")
        return p.bus_bandwidth

    assert bandwidth("10Gbit/s") == pytest.approx(bandwidth("10Gbit/s", NCCL_SOCKET_NTHREADS="4"))
    four = bandwidth("100Gbit/s", NCCL_SOCKET_NTHREADS="4")
    assert four > 3 * bandwidth("100Gbit/s")
    assert four < 12.5e9


def test_only_libfabric_flushes_by_messages_and_only_before_hopper() -> None:
    assert flushed("slingshot", "ampere") == flushed("efa-v1", "volta") == 1.0
    assert flushed("slingshot", "hopper") == flushed("slingshot", "cdna2") == 0.0
    assert flushed("infiniband", "ampere") == flushed("tcp", "ampere") == 0.0
