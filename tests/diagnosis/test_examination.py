"""Diagnoses of curves whose truth is known: machines that differ from what they should be.

The sick curves come from the cluster file's own keys, the library's own variables or arithmetic on
the durations, not from the faults' code, and carry noise of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import commsim
from commsim.cost.profile import shipped
from commsim.diagnosis.examination import diagnose
from commsim.diagnosis.fault import faults
from commsim.diagnosis.findings import Findings
from commsim.errors import DiagnosisError
from commsim.libraries.nccl.nccl import Nccl
from commsim.measurements.measurement import Measurement
from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster

SIZES = tuple(1 << k for k in range(10, 33, 2))
NOISE = 0.03
Spoil = Callable[[float, int], float]


def curve(
    cluster: Cluster,
    operation: str = "all_reduce",
    library: Nccl | None = None,
    spoil: Spoil = lambda duration, _: duration,
    seed: int = 0,
) -> list[Measurement]:
    """What such a machine would show: predictions with 3 % of noise on each point."""
    noise = np.random.default_rng(seed).standard_normal(len(SIZES))
    found = []
    for k, nbytes in enumerate(SIZES):
        asked = commsim.Collective(operation, nbytes=nbytes)
        duration = spoil(commsim.predict(asked, cluster, library=library).duration, k)
        duration *= float(np.exp(NOISE * noise[k]))
        found.append(Measurement(asked, duration=duration, cluster=cluster))
    return found


def causes(findings: Findings) -> list[str]:
    return [hypothesis.cause for hypothesis in findings.hypotheses]


A100 = ("dgx-a100", {"nodes": 4})
PCIE: tuple[str, dict[str, Any]] = ("l40sx8", {})


@pytest.mark.parametrize(
    ("cause", "preset", "overrides", "operation"),
    [
        ("rail_missing", A100, {"node.nics.count": 4}, "all_reduce"),
        ("rail_missing", A100, {"node.nics.count": 2}, "all_gather"),
        ("gdr_off", A100, {"node.nics.gpudirect": False}, "all_reduce"),
        ("tcp_fallback", A100,
         {"fabric.transport": "tcp", "node.nics.gpudirect": False}, "all_reduce"),
        ("tcp_fallback", A100,
         {"fabric.transport": "tcp", "node.nics.gpudirect": False}, "all_to_all"),
        ("pcie_downgrade", PCIE, {"node.pcie": "gen3 x8"}, "all_gather"),
    ],
)  # fmt: skip
def test_a_changed_key_of_the_cluster_is_found(
    cause: str, preset: tuple[str, dict[str, Any]], overrides: dict[str, Any], operation: str
) -> None:
    name, base = preset
    sick = load_cluster(name, **(base | overrides))
    findings = diagnose(curve(sick, operation), load_cluster(name, **base))
    assert not findings.healthy
    assert cause in causes(findings)[:3]


def test_a_gpu_with_slow_nvlinks() -> None:
    machine = load_cluster("dgx-a100")
    links = tuple(
        replace(link, bandwidth=0.4 * link.bandwidth) if link.kind == "nvlink" else link
        for link in machine.node.links
    )
    sick = replace(machine, node=replace(machine.node, links=links))
    findings = diagnose(curve(sick, "all_gather"), machine)
    assert not findings.healthy
    assert "bad_link" in causes(findings)[:3]


def test_sharp_that_should_be_there() -> None:
    """NCCL_COLLNET_ENABLE and SHARP in the fabric, but the run had none."""
    library = Nccl(version="2.27.3", env={"NCCL_COLLNET_ENABLE": "1", "NCCL_ALGO": "CollnetDirect,"
                                          "CollnetChain,Ring,Tree"})  # fmt: skip
    base = ("dgx-a100", {"nodes": 8, "fabric.sharp": True})
    sick = load_cluster(base[0], **(base[1] | {"fabric.sharp": False}))
    findings = diagnose(
        curve(sick, library=library), load_cluster(base[0], **base[1]), library=library
    )
    assert "sharp_off" in causes(findings)


@pytest.mark.parametrize(
    ("cause", "env"),
    [
        ("forced_protocol", {"NCCL_PROTO": "LL"}),
        ("forced_protocol", {"NCCL_PROTO": "LL128"}),
        ("nvls_off", {"NCCL_NVLS_ENABLE": "0"}),
        ("no_p2p", {"NCCL_P2P_DISABLE": "1"}),
    ],
)
def test_a_variable_of_the_library_is_found(cause: str, env: dict[str, str]) -> None:
    machine = load_cluster("dgx-h100")
    found = curve(machine, library=Nccl(version="2.27.3", env=env))
    findings = diagnose(found, machine, library=Nccl(version="2.27.3"))
    assert not findings.healthy
    assert cause in causes(findings)[:2]


def test_small_messages_that_the_driver_copies_are_gdrcopy_off() -> None:
    machine, well = load_cluster("alps", nodes=4), {"FI_CXI_RX_MATCH_MODE": "software"}
    env = {**well, "FI_HMEM_CUDA_USE_GDRCOPY": "0"}
    found = curve(machine, library=Nccl(version="2.27.3", env=env))
    findings = diagnose(found, machine, library=Nccl(version="2.27.3", env=well))
    assert not findings.healthy
    assert "gdrcopy_off" in causes(findings)[:2]
    meant = diagnose(found, machine, library=Nccl(version="2.27.3", env=env))
    assert meant.healthy
    assert "gdrcopy_off" not in causes(meant)


def test_a_variable_that_was_meant_is_no_fault() -> None:
    machine, library = load_cluster("dgx-h100"), Nccl(version="2.27.3", env={"NCCL_PROTO": "LL"})
    assert diagnose(curve(machine, library=library), machine, library=library).healthy


def test_a_late_rank() -> None:
    machine = load_cluster("dgx-h100")
    late = curve(machine, spoil=lambda duration, _: duration + 110e-6)
    findings = diagnose(late, machine)
    assert not findings.healthy
    assert causes(findings)[0] == "slow_rank"


def test_times_that_jump_are_congestion() -> None:
    """Large sizes at 0.3 to 0.8 of the network, another share at each."""
    machine = load_cluster("dgx-a100", nodes=4)
    shares = (0.75, 0.32, 0.6, 0.3, 0.8, 0.35)

    def spoil(duration: float, k: int) -> float:
        return duration / shares[k % 6] if SIZES[k] >= 1 << 22 else duration

    findings = diagnose(curve(machine, "all_gather", spoil=spoil), machine)
    assert not findings.healthy
    assert "congestion" in causes(findings)[:2]


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "all_to_all", "send_recv"])
@pytest.mark.parametrize("preset", ["dgx-h100", "dgx-a100", "l40sx8", "oci-mi300x"])
def test_a_healthy_machine_with_noise_is_healthy(preset: str, operation: str) -> None:
    machine = load_cluster(preset)
    for seed in range(3):
        findings = diagnose(curve(machine, operation, seed=seed), machine)
        assert findings.healthy
        assert findings.likelihood > 0.5


def test_a_faster_machine_is_never_sick() -> None:
    machine = load_cluster("dgx-a100", nodes=2)
    fast = curve(machine, spoil=lambda duration, k: duration * (0.3 if k % 3 else 0.6))
    findings = diagnose(fast, machine)
    assert findings.healthy
    assert findings.likelihood > 0.8


def test_one_spike_makes_no_machine_sick() -> None:
    machine = load_cluster("dgx-h100")
    spiked = curve(machine, spoil=lambda duration, k: duration * (4 if k == 3 else 1))
    assert diagnose(spiked, machine).healthy


def test_likelihoods_are_probabilities_and_curves_fit_the_points() -> None:
    machine = load_cluster("dgx-a100", nodes=2)
    findings = diagnose(curve(load_cluster("dgx-a100", nodes=2, **{"node.nics.count": 2})), machine)
    likelihoods = [h.likelihood for h in findings.hypotheses]
    assert sum(likelihoods) == pytest.approx(1.0)
    assert likelihoods == sorted(likelihoods, reverse=True)
    assert all(len(h.curve) == len(findings.points) == len(SIZES) for h in findings.hypotheses)
    assert {*causes(findings), *findings.untold} == {fault.cause for fault in faults()}
    best = findings.hypotheses[0]
    worst = max(findings.points, key=lambda p: p.slower)
    at = findings.points.index(worst)
    assert best.curve[at] / worst.expected == pytest.approx(worst.slower, rel=0.2)


def test_the_order_and_repeats_of_measurements_do_not_matter() -> None:
    machine = load_cluster("dgx-a100", nodes=2)
    found = curve(load_cluster("dgx-a100", nodes=2, **{"node.nics.count": 2}))
    once = diagnose(found, machine)
    again = diagnose([*reversed(found), *found], machine)
    assert again.likelihood == pytest.approx(once.likelihood)
    assert causes(again) == causes(once)


def test_several_operations_count_together() -> None:
    machine = load_cluster("dgx-a100", nodes=2)
    sick = load_cluster("dgx-a100", nodes=2, **{"node.nics.rate": "100Gbit/s"})
    both = [*curve(sick, "all_gather"), *curve(sick, "all_to_all", seed=1)]
    alone = diagnose(both[: len(SIZES)], machine)
    together = diagnose(both, machine)
    assert together.likelihood <= alone.likelihood
    assert len(together.points) == 2 * len(SIZES)


def test_gloo_has_slow_networks_too() -> None:
    gloo: Any = commsim.Gloo()
    machine = load_cluster("dgx-a100", nodes=2, **{"fabric.transport": "tcp"})
    sizes = [1 << k for k in range(12, 29, 2)]
    found = []
    for nbytes in sizes:
        asked = commsim.Collective("all_reduce", nbytes=nbytes)
        duration = commsim.predict(asked, machine, library=gloo, profile=shipped("gloo")).duration
        found.append(Measurement(asked, duration=4 * duration, cluster=machine, library=gloo))
    findings = diagnose(found, machine)
    assert not findings.healthy
    assert not {"forced_protocol", "nvls_off", "no_p2p"} & set(causes(findings))


def test_other_hardware_than_was_fitted_is_a_doubt() -> None:
    machine = load_cluster("rtx-pro-6000x8")
    notes = diagnose(curve(machine), machine).notes
    assert any("no measurement of" in note for note in notes)


def test_ranks_that_the_cluster_does_not_have_are_refused() -> None:
    asked = commsim.Collective("all_reduce", nbytes=1 << 20)
    many = Measurement(asked, duration=1e-3, n_ranks=16)
    with pytest.raises(DiagnosisError, match=r"expected 8 ranks.* got 16; state the nodes"):
        diagnose([many], load_cluster("dgx-a100"))


def test_in_place_times_count_only_where_there_are_no_others() -> None:
    machine = load_cluster("dgx-a100")
    asked = commsim.Collective("all_reduce", nbytes=1 << 20)
    out = Measurement(asked, duration=2e-4, cluster=machine)
    inside = Measurement(asked, duration=9e-4, cluster=machine, in_place=True)
    assert diagnose([out, inside], machine).points[0].measured == 2e-4
    assert diagnose([inside], machine).points[0].measured == 9e-4


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(DiagnosisError, match="expected one at least, got none"):
        diagnose([], load_cluster("dgx-h100"))


def test_json_in_base_units() -> None:
    machine = load_cluster("dgx-h100")
    found = diagnose(curve(machine), machine).to_dict()
    assert found["healthy"] is True
    point = found["points"][0]
    assert point["size_bytes"] == SIZES[0]
    assert point["interval_s"][0] <= point["expected_s"] <= point["interval_s"][1]
    assert len(found["hypotheses"][0]["curve_s"]) == len(SIZES)
