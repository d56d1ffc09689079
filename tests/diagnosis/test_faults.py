"""Every fault that the folder holds: its words, its ways, and what it does to a curve."""

from __future__ import annotations

import pkgutil
from itertools import pairwise

import pytest

import commsim.diagnosis.faults as folder
from commsim.collectives.collective import Collective
from commsim.cost.profile import shipped
from commsim.diagnosis.evidence import Evidence
from commsim.diagnosis.fault import Fault, Setup, faults, healthy, variants
from commsim.libraries.lookup import library
from commsim.topology.load import load_cluster

# The labels that published logs carry, and the rest of what the command promises to tell.
PROMISED = {
    "acs_on", "gdr_off", "forced_protocol", "nvls_off", "other", "pcie_downgrade", "tcp_fallback",
    "rail_missing", "wrong_affinity", "sharp_off", "no_p2p", "bad_link", "congestion", "slow_rank",
}  # fmt: skip
SETUPS = {
    "network": ("dgx-a100", {"nodes": 2, "fabric.sharp": True}, "nccl@2.21.5"),
    "one": ("dgx-h100", {}, "nccl@2.27.3"),
    "consumer": ("rtx4090x8", {}, "nccl"),
    "amd": ("oci-mi300x", {"nodes": 2}, "rccl"),
    "gloo": ("dgx-a100", {"nodes": 2}, "gloo"),
}


def setup(name: str) -> Setup:
    preset, overrides, text = SETUPS[name]
    made = library(text)
    return Setup(
        cluster=load_cluster(preset, **overrides), library=made,
        profile=shipped("gloo" if made.name == "gloo" else "nccl"),
    )  # fmt: skip


def test_every_promised_cause_is_there_and_named_as_its_file() -> None:
    files = {module.name for module in pkgutil.iter_modules(folder.__path__)}
    assert {fault.cause for fault in faults()} == files
    assert files >= PROMISED


def test_a_fault_with_more_published_incidents_is_likelier_beforehand() -> None:
    for fault in faults():
        assert fault.prior == 1 + len(set(fault.incidents))


def test_no_setting_belongs_to_two_faults() -> None:
    owned = [name for fault in faults() for name in fault.settings]
    assert len(owned) == len(set(owned))


@pytest.mark.parametrize("fault", faults(), ids=lambda f: f.cause)
def test_says_what_it_is_how_to_check_and_how_to_mend(fault: Fault) -> None:
    for words in (fault.what, fault.check, fault.fix):
        assert len(words) > 15
        assert "\n" not in words


@pytest.mark.parametrize("name", SETUPS)
@pytest.mark.parametrize("fault", faults(), ids=lambda f: f.cause)
def test_ways_run_and_their_shares_are_no_more_than_one(fault: Fault, name: str) -> None:
    where = setup(name)
    ways = variants(fault, where)
    assert sum(way.share for way in ways) <= 1 + 1e-9
    assert all(way.share > 0 and way.detail for way in ways)
    assert tuple(fault.clues(Evidence(), where)) == ()  # no evidence, no clues
    for way in ways[:3]:
        cost = way.cost(Collective("all_reduce", nbytes=1 << 26))
        low, high = cost.spread
        assert cost.duration > 0
        assert low <= 0 <= high
        assert all(0 <= slope <= sd for slope, (_, sd) in zip(cost.slopes, way.unsure, strict=True))


def test_network_faults_need_a_network_and_nccl_faults_nccl() -> None:
    named = {fault.cause: fault for fault in faults()}
    for cause in ("acs_on", "gdr_off", "tcp_fallback", "rail_missing", "congestion", "sharp_off"):
        assert variants(named[cause], setup("one")) == ()
    for cause in ("forced_protocol", "nvls_off", "no_p2p"):
        assert variants(named[cause], setup("gloo")) == ()


def test_a_smaller_share_of_a_nic_is_never_faster() -> None:
    where = setup("network")
    asked = Collective("all_gather", nbytes=1 << 30)
    named = {fault.cause: fault for fault in faults()}
    times = [way.cost(asked).duration for way in variants(named["acs_on"], where)]
    assert all(a >= b for a, b in pairwise(times))  # from 15 % of the link up to 50 %
    assert times[-1] >= healthy(where).cost(asked).duration


def test_acs_caps_a_nic_at_its_share_of_the_link() -> None:
    """15 % of a gen4 x16 link, 31.5 GB/s, is 4.73 GB/s; 8 NICs carry an all_gather on two nodes,
    where every node must get half of 1 GiB: at least 2^29 / (8 x 4.73e9) s = 14.2 ms."""
    where = setup("network")
    named = {fault.cause: fault for fault in faults()}
    slowest = variants(named["acs_on"], where)[0]
    duration = slowest.cost(Collective("all_gather", nbytes=1 << 30)).duration
    assert 14.2e-3 <= duration <= 2.2 * 14.2e-3  # a ring's boundary carries 15/16 of it, not half
