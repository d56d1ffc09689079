"""NCCL logs and topology texts as evidence: what they make likelier, and less likely."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import commsim
from commsim.diagnosis.examination import diagnose
from commsim.diagnosis.findings import Findings, Hypothesis
from commsim.errors import SpecError
from commsim.libraries.nccl.nccl import Nccl
from commsim.measurements.measurement import Measurement
from commsim.topology.load import load_cluster
from commsim.topology.node import NodeTopology

MACHINE = load_cluster("dgx-a100", nodes=2)
LIBRARY = Nccl(version="2.21.5")
SIZES = tuple(1 << k for k in range(12, 33, 4))


def run(slow: float) -> list[Measurement]:
    """An all_gather whose large sizes take `slow` times as long as they should."""
    found = []
    for nbytes in SIZES:
        asked = commsim.Collective("all_gather", nbytes=nbytes)
        duration = commsim.predict(asked, MACHINE, library=LIBRARY).duration
        duration *= slow if nbytes > 1 << 20 else 1
        found.append(Measurement(asked, duration=duration, cluster=MACHINE))
    return found


def of(findings: Findings, cause: str) -> Hypothesis:
    return next(h for h in findings.hypotheses if h.cause == cause)


def examined(log: str | None = None, topology: NodeTopology | None = None) -> Findings:
    return diagnose(run(3.0), MACHINE, library=LIBRARY, nccl_log=log, topology=topology)


PLAIN = examined()


@pytest.mark.parametrize(
    ("cause", "line", "word"),
    [
        ("gdr_off", "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", "mlx5_0"),
        ("gdr_off", "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0", "no GPUDirect"),
        ("tcp_fallback", "Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0", "sockets"),
        ("forced_protocol", "NCCL_PROTO set by environment to LL", "NCCL_PROTO=LL"),
        ("rail_missing", "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:1.2.3.4<0>",
         "2 NICs used, 8 expected"),
    ],
)  # fmt: skip
def test_a_line_of_the_log_speaks_for_a_cause(cause: str, line: str, word: str) -> None:
    found = examined(f"node0:1:1 [0] NCCL INFO {line}\n")
    hypothesis = of(found, cause)
    assert hypothesis.likelihood > 3 * of(PLAIN, cause).likelihood
    assert any(word in text and "log" in text for text in hypothesis.evidence)


@pytest.mark.parametrize(
    ("cause", "line"),
    [
        ("tcp_fallback", "Using network IB"),
        ("gdr_off", "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA"),
    ],
)
def test_a_line_of_the_log_speaks_against_a_cause(cause: str, line: str) -> None:
    found = examined(f"node0:1:1 [0] NCCL INFO {line}\n")
    assert of(found, cause).likelihood < 0.2 * of(PLAIN, cause).likelihood


def test_the_log_does_not_make_a_fast_machine_sick() -> None:
    log = "node0:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0\n"
    found = diagnose(run(1.0), MACHINE, library=LIBRARY, nccl_log=log)
    assert found.healthy


def test_a_setting_that_is_no_fault_reaches_the_model() -> None:
    """It is no hypothesis: every one is predicted with it."""
    log = (
        "node0:1:1 [0] NCCL INFO NCCL_MAX_NCHANNELS set by environment to 2.\n"
        "node0:1:1 [0] NCCL INFO NCCL_PROTO set by environment to LL\n"
    )
    notes = examined(log).notes
    assert "NCCL_MAX_NCHANNELS=2, which the log shows, is taken as meant" in notes
    assert not any("NCCL_PROTO" in note for note in notes)  # a fault's own


def test_a_topology_with_fewer_nics() -> None:
    seen = load_cluster("dgx-a100", **{"node.nics.count": 4}).node
    found = examined(topology=seen)
    assert of(found, "rail_missing").likelihood > 3 * of(PLAIN, "rail_missing").likelihood
    assert "topology: 4 NICs, 8 expected" in of(found, "rail_missing").evidence


def test_a_topology_with_a_slow_link() -> None:
    links = tuple(
        replace(link, bandwidth=link.bandwidth / 4) if link.source == "card3" else link
        for link in MACHINE.node.links
    )
    found = examined(topology=replace(MACHINE.node, links=links))
    assert any(
        "the PCIe link of card3 has 7.877 GB/s" in text
        for text in of(found, "pcie_downgrade").evidence
    )


def test_a_topology_that_lacks_nvlinks() -> None:
    links = tuple(
        replace(link, width=10) if link.source == "gpu5" and link.kind == "nvlink" else link
        for link in MACHINE.node.links
    )
    found = examined(topology=replace(MACHINE.node, links=links))
    assert "topology: gpu5 has 10 NVLinks, 12 expected" in of(found, "bad_link").evidence


SMI = """
        GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity
GPU0     X      NV12    SYS     0-15            0
GPU1    NV12     X      SYS     0-15            0
NIC0    SYS     SYS      X
"""


def test_a_text_of_nvidia_smi_whose_nic_is_far(tmp_path: Path) -> None:
    path = tmp_path / "topo.txt"
    path.write_text(SMI, encoding="utf-8")
    found = diagnose(run(3.0), MACHINE, library=LIBRARY, topology=path)
    assert any(
        "no NIC on the socket of GPU 0, 1" in t for t in of(found, "wrong_affinity").evidence
    )
    assert any("topology: 1 NICs, 8 expected" in t for t in of(found, "rail_missing").evidence)


def test_a_file_without_a_line_of_nccl_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.log"
    path.write_text("nothing here\n", encoding="utf-8")
    with pytest.raises(SpecError, match="no line of NCCL"):
        diagnose(run(1.0), MACHINE, library=LIBRARY, nccl_log=path)
