"""The catalogue of parts against figures of the data sheets, written here by hand."""

from __future__ import annotations

import dataclasses

import pytest

from commsim.errors import UnknownNameError
from commsim.topology import parts
from commsim.units import GIB

GB, TF = 1e9, 1e12

# Name in a data sheet, GB/s of the scale-up network in one direction (half of the number that
# data sheets print), GB/s of the memory, TFLOP/s of dense half precision, capability.
DATA_SHEETS = [
    ("Tesla V100-SXM2-32GB", 150, 900, 125, 70),  # "300 GB/s" NVLink
    ("A100-SXM4-40GB", 300, 1555, 312, 80),  # "600 GB/s"
    ("A100 SXM4 80GB", 300, 2039, 312, 80),
    ("A800-SXM4-80GB", 200, 2039, 312, 80),  # export variant: "400 GB/s"
    ("A30", 100, 933, 165, 80),
    ("H100-SXM5-80GB", 450, 3350, 989.4, 90),  # "900 GB/s"
    ("NVIDIA H100 80GB HBM3", 450, 3350, 989.4, 90),
    ("H100 PCIe", 300, 2000, 756, 90),  # bridge: "600 GB/s"
    ("H800", 200, 3350, 989.4, 90),  # "400 GB/s"
    ("H20-3e", 450, 4800, 148, 90),
    ("H200 SXM 141GB", 450, 4800, 989.4, 90),
    ("B200", 900, 8000, 2250, 100),  # "1.8 TB/s"
    ("B300 SXM 288GB", 900, 8000, 2250, 103),
    ("GB200 (per GPU)", 900, 8000, 2500, 100),
    ("L40S", 0, 864, 362, 89),
    ("rtx 4090", 0, 1008, 165.2, 89),
    ("RTX-5090", 0, 1792, 209.5, 120),
    ("GeForce RTX 3090", 56.25, 936, 71, 86),  # bridge: "112.5 GB/s"
    ("MI250X", 350, 1638.5, 191.5, 0),  # one die of two: half of 3277 GB/s and 383 TFLOP/s
    ("MI300X", 448, 5300, 1307.4, 0),  # 7 links of 64 GB/s
    ("MI355X", 535.5, 8000, 2516.6, 0),  # 7 links of 76.5 GB/s
]


@pytest.mark.parametrize(
    ("name", "scale_up", "memory", "half", "capability"),
    DATA_SHEETS,
    ids=[d[0] for d in DATA_SHEETS],
)
def test_gpus_carry_data_sheet_figures(
    name: str, scale_up: float, memory: float, half: float, capability: int
) -> None:
    part = parts.gpu(name)
    assert part.scale_up_bandwidth == pytest.approx(scale_up * GB)
    assert part.memory_bandwidth == pytest.approx(memory * GB)
    assert part.peak_flops("float16") == pytest.approx(half * TF)
    assert part.capability == capability


def test_every_part_has_a_source_and_sound_figures() -> None:
    for part in parts.gpus():
        assert part.source.startswith("https://"), part.name
        assert part.memory >= 16 * GIB, part.name
        assert part.memory_bandwidth > 100 * GB, part.name
        assert part.flops, part.name
        assert (part.link_count > 0) == (part.link_rate > 0) == bool(part.link_kind), part.name
        for dtype, measured in part.measured_matmul:
            peak = part.peak_flops(dtype)
            # The best product seen is below the data sheet: nothing here may beat the hardware.
            assert peak is not None
            assert measured < peak, part.name
    for nic in parts.nics():
        assert nic.source.startswith("https://"), nic.name
        # No card is sold that its own PCIe link cannot feed.
        assert nic.rate <= parts.pcie_bandwidth(nic.pcie_generation, nic.pcie_width), nic.name
    for switch in parts.switches():
        assert switch.source.startswith("https://"), switch.name
        assert min(switch.rate, switch.ports) > 0, switch.name
    for link in parts.links():
        assert link.source.startswith("https://"), link.name
        assert link.rate > 0, link.name
    for cpu in parts.cpus():
        assert cpu.source.startswith("https://"), cpu.name
        assert cpu.vendor in ("intel", "amd", "arm", "ibm", "other")


def test_names_and_aliases_mean_one_part_each() -> None:
    owner: dict[str, str] = {}
    for part in parts.gpus():
        for name in (part.name, *part.aliases):
            key = "".join(c for c in name.lower() if c.isalnum())
            assert owner.setdefault(key, part.name) == part.name, name
            assert parts.gpu(name) is part
            assert parts.gpu(name.lower()) is part


def test_the_catalogue_is_wide() -> None:
    vendors = {part.vendor for part in parts.gpus()}
    assert vendors == {"nvidia", "amd", "google", "intel", "aws"}
    assert len(parts.gpus()) >= 59
    for name in ("ConnectX-4", "ConnectX-8", "BlueField-3", "EFA-v3", "Cassini", "gVNIC"):
        assert parts.nic(name).rate > 0
    for generation in range(1, 6):
        assert parts.switch(f"NVSwitch-{generation}").kind == "nvswitch"
    assert parts.switch("Quantum-2").ports == 64
    assert parts.switch("NVSwitch-3").ports == 64
    assert parts.nic("AINIC").rate == 50 * GB


def test_unknown_names_say_what_is_near() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'H100-SXM5-80GB'"):
        parts.gpu("H100-SXM6-80GB")
    with pytest.raises(UnknownNameError, match="ConnectX-7"):
        parts.nic("ConectX-7")


def test_pcie_rates_are_transfer_rate_times_coding() -> None:
    # 8 GT/s x 128/130 / 8 bits x 16 lanes = 15.75 GB/s; the next generations double it.
    assert parts.pcie_bandwidth(3, 16) == pytest.approx(15.754 * GB, rel=1e-4)
    assert parts.pcie_bandwidth(4, 16) == pytest.approx(31.508 * GB, rel=1e-4)
    assert parts.pcie_bandwidth(5, 16) == pytest.approx(63.015 * GB, rel=1e-4)
    assert parts.pcie_bandwidth(5, 8) == pytest.approx(31.508 * GB, rel=1e-4)
    assert parts.pcie_bandwidth(6, 16) == pytest.approx(121.0 * GB)
    with pytest.raises(ValueError, match="gen5 x16"):
        parts.parse_pcie("gen9 x16")


def test_geforce_has_no_peer_to_peer_and_data_centre_parts_have() -> None:
    for name in ("RTX-3090", "RTX-4090", "RTX-5090", "RTX-4070-Ti-SUPER"):
        assert not parts.gpu(name).p2p
        assert not parts.gpu(name).gpudirect
    for name in ("L40S", "A10", "RTX-A6000", "RTX-PRO-6000-Server", "H100-PCIe-80GB"):
        assert parts.gpu(name).p2p


def test_multicast_is_for_nvswitch_from_hopper_on() -> None:
    able = {part.name for part in parts.gpus() if part.multicast}
    assert {"H100-SXM5-80GB", "H200-SXM-141GB", "B200-SXM-180GB", "GB200-NVL72"} <= able
    assert not any(parts.gpu(name).multicast for name in ("A100-SXM4-80GB", "H100-PCIe-80GB"))


def test_mig_slice_is_its_share_of_the_gpu() -> None:
    # MIG user guide, A100 80GB: 1g.10gb has 14 of 108 SMs and one eighth of the memory.
    whole, part = parts.gpu("A100-SXM4-80GB"), parts.gpu("A100-SXM4-80GB:1g.10gb")
    assert part.sms == 14
    assert part.memory == 10 * GIB
    assert part.memory_bandwidth == pytest.approx(2039 * GB / 8)
    assert part.peak_flops("bf16") == pytest.approx(312 * TF * 14 / 108)
    assert part.scale_up_bandwidth == 0
    assert not part.p2p
    assert whole.scale_up_bandwidth == 300 * GB
    # H100 80GB: 1g.10gb has 16 of 132 SMs, seven of them fit.
    hopper = next(p for p in parts.gpu("H100").mig_profiles if p.name == "1g.10gb")
    assert (hopper.sms, hopper.instances) == (16, 7)
    with pytest.raises(UnknownNameError, match=r"1g\.10gb"):
        parts.gpu("A100-SXM4-80GB:1g.11gb")
    with pytest.raises(UnknownNameError, match="MIG profile of L40S"):
        parts.gpu("L40S:1g.10gb")


def test_flops_by_torch_names_of_dtypes() -> None:
    part = parts.gpu("H100")
    assert part.peak_flops("torch.bfloat16") == part.peak_flops("bf16") == 989.4 * TF
    assert part.peak_flops("float8_e4m3fn") == 1978.9 * TF
    assert part.peak_flops("float4") is None
    assert part.measured_flops("bfloat16") == 794.5 * TF


def test_parts_are_values() -> None:
    part = parts.gpu("H100")
    assert hash(part) == hash(dataclasses.replace(part))
    with pytest.raises(dataclasses.FrozenInstanceError):
        part.memory = 0  # type: ignore[misc]
