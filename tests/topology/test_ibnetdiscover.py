"""A network as ibnetdiscover lists it: what is read, what it becomes, what is refused."""

import contextlib
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commsim
from commsim.errors import SpecError
from commsim.topology.importers import ibnetdiscover
from tests.topology.subnets import discovered

# As printed by infiniband-diags of a small network: an external port, a SHARP node, a chassis.
TYPED = """#
# Topology file: generated on Tue Sep  1 14:56:33 2020
#
# Initiated from node b8599f0300fc6de4 port b8599f0300fc6de4

vendid=0x2c9
devid=0xd2f0
sysimgguid=0xb8599f0300fc6de4
switchguid=0xb8599f0300fc6de4(b8599f0300fc6de4)
Switch\t41 "S-b8599f0300fc6de4"\t\t# "MF0;leaf-01:QM/U1" enhanced port 0 lid 3 lmc 0
[1]\t"H-0c42a103008b3bd0"[1](c42a103008b3bd0) \t\t# "gpu-9 HCA-1" lid 12 4xHDR
[2][ext 2]\t"H-0c42a103008b3bd1"[1](c42a103008b3bd1) \t\t# "gpu-10 HCA-1" lid 13 2xHDR
[41]\t"H-b8599f0300fc6dec"[1](b8599f0300fc6dec) \t\t# "Mellanox Aggregation Node" lid 4 4xHDR

vendid=0x2c9
devid=0xcf09
caguid=0xb8599f0300fc6dec
Ca\t1 "H-b8599f0300fc6dec"\t\t# "Mellanox Aggregation Node"
[1](b8599f0300fc6dec) \t"S-b8599f0300fc6de4"[41]\t\t# lid 4 lmc 0 "MF0;leaf-01:QM/U1" lid 3 4xHDR

Ca\t1 "H-0c42a103008b3bd1"\t\t# "gpu-10 HCA-1"
[1](c42a103008b3bd1) \t"S-b8599f0300fc6de4"[2][ext 2]\t\t# lid 13 lmc 0 "MF0;leaf-01:QM/U1" 2xHDR

Ca\t1 "H-0c42a103008b3bd0"\t\t# "gpu-9 HCA-1"
[1](c42a103008b3bd0) \t"S-b8599f0300fc6de4"[1]\t\t# lid 12 lmc 0 "MF0;leaf-01:QM/U1" lid 3 4xHDR
"""


def test_hosts_switches_and_rates_are_read() -> None:
    subnet = ibnetdiscover.parse(TYPED)
    assert subnet.switches == ("leaf-01",)
    assert [host.name for host in subnet.hosts] == ["gpu-9", "gpu-10"]  # 9 before 10
    # HDR: 50 Gbit/s a lane, so 4x is 25 GB/s and a cable split in two 12.5 GB/s.
    assert [host.ports[0].rate for host in subnet.hosts] == [25e9, 12.5e9]
    assert len(subnet.runs) == 2
    assert any("SHARP" in note for note in subnet.notes)


def _cluster(tmp_path, text, nodes=None, **overrides):
    file = tmp_path / "fabric.txt"
    file.write_text(text)
    given = {} if nodes is None else {"nodes": nodes}
    return commsim.load_cluster(
        "dgx-h100", **given, **{"fabric.cabling": str(file), "node.nics.count": 2, **overrides}
    )


def test_a_fat_tree_read_from_text_is_the_fat_tree_by_its_kind(tmp_path) -> None:
    """4 hosts of 2 NICs on each leaf, 8 cables up: what `fat-tree` without oversubscription is."""
    found = _cluster(tmp_path, discovered(8, 2, 4, 4, up=2))
    assert found.nodes == 8
    assert found.bisection_share == 1.0
    assert {s.kind for s in found.wiring.switches} == {"leaf", "spine"}
    ranks = tuple(range(32)), tuple(range(32, 64))
    assert found.cut_bandwidth(*ranks) == pytest.approx(4 * 2 * 50e9)


def test_few_uplinks_are_an_oversubscription_that_predict_and_simulate_feel(tmp_path) -> None:
    """4 x 2 NICs of 400 Gbit/s on each leaf and 2 cables up: 4 to 1."""
    thin = _cluster(tmp_path, discovered(8, 2, 4, 2))
    wide = _cluster(tmp_path, discovered(8, 2, 4, 4, up=2))
    assert thin.fabric.oversubscription == pytest.approx(4.0)
    assert thin.cut_bandwidth(tuple(range(32)), tuple(range(32, 64))) == pytest.approx(2 * 50e9)
    asked = commsim.Collective("all_to_all", nbytes=1 << 28)
    slow, fast = (commsim.predict(asked, c).duration for c in (thin, wide))
    # Half of what a NIC sends leaves its leaf's 32 ranks (32 of 56 peers off the machine): at a
    # quarter of the rate, it takes at least twice as long.
    assert slow > 2 * fast
    played = [commsim.simulate(asked, c).duration for c in (thin, wide)]
    assert played[0] > 2 * played[1]


def test_halves_are_also_taken_by_leaf(tmp_path) -> None:
    """Hosts named so that neighbours lie on different leaves: the worse halving is by leaf."""
    text = discovered(8, 2, 4, 2)
    swapped = {f"node-{n + 1} ": f"node-{(n % 4) * 2 + n // 4 + 1} " for n in range(8)}
    text = re.sub(r"node-\d+ ", lambda m: swapped[m[0]], text)
    assert _cluster(tmp_path, text).fabric.oversubscription == pytest.approx(4.0)


def test_a_trained_down_cable_is_named(tmp_path) -> None:
    found = _cluster(tmp_path, discovered(4, 2, 4, 1, slow={(2, 1): "4xHDR"}))
    assert any("adapter 1 of node-3 at 25 GB/s" in note for note in found.notes)


def test_a_slow_cable_slows_what_is_played_over_it(tmp_path) -> None:
    """One of 8 ports at a quarter: a ring over both NICs of each machine waits for it."""
    asked = commsim.Collective("all_gather", nbytes=1 << 28)
    healthy = _cluster(tmp_path, discovered(4, 2, 4, 1))
    slow = _cluster(tmp_path, discovered(4, 2, 4, 1, slow={(2, 1): "1xNDR"}))
    times = [commsim.simulate(asked, c).duration for c in (healthy, slow)]
    assert times[1] == pytest.approx(4 * times[0], rel=0.15)


def test_wider_switches_widen_the_cut(tmp_path) -> None:
    thin = _cluster(tmp_path, discovered(8, 2, 4, 2))
    wide = replace(thin, fabric=thin.fabric.widened(2))
    assert wide.bisection_share == pytest.approx(2 * thin.bisection_share)
    assert replace(thin, fabric=thin.fabric.unlimited).bisection_share == 1


def test_other_hosts_are_left_out_and_nodes_may_be_fewer(tmp_path) -> None:
    text = discovered(6, 2, 3, 1)
    storage = text.replace('"node-6 mlx5_1"', '"store-1 mlx5_0"')
    assert _cluster(tmp_path, storage).nodes == 5
    assert _cluster(tmp_path, storage, nodes=3).n_ranks == 24


def test_paths_in_a_cluster_file_are_beside_it(tmp_path) -> None:
    (tmp_path / "net.txt").write_text(discovered(4, 8, 2, 2, up=8))
    (tmp_path / "mine.toml").write_text('extends = "dgx-h100"\n[fabric]\ncabling = "net.txt"\n')
    assert commsim.load_cluster(tmp_path / "mine.toml").nodes == 4


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda t: t[: t.rindex("Switch")], "is the file cut off?"),
        (lambda t: t.replace("4xNDR", "4xFAST", 1), "line 7: expected a port such as"),
        (lambda t: t.replace("Switch", "Swatch"), "no switch"),
        (lambda t: "", "no switch"),
        (lambda t: "GPU0 GPU1 NV18", "no switch"),
    ],
)
def test_what_cannot_be_read_says_where(change, found) -> None:
    with pytest.raises(SpecError, match=re.escape(found)):
        ibnetdiscover.parse(change(discovered(2, 2, 2, 1)))


def test_too_few_hosts_say_how_many_there_are(tmp_path) -> None:
    with pytest.raises(SpecError, match=r"expected 9 hosts with 2 connected ports.*found 4"):
        _cluster(tmp_path, discovered(4, 2, 4, 1), nodes=9)
    with pytest.raises(SpecError, match=r"hosts: 4 with 2"):
        _cluster(tmp_path, discovered(4, 2, 4, 1), **{"node.nics.count": 8})


def test_cabled_needs_a_file() -> None:
    with pytest.raises(SpecError, match=r"fabric\.cabling: missing"):
        commsim.load_cluster("dgx-h100", nodes=2, **{"fabric.kind": "cabled"})
    with pytest.raises(SpecError, match="cannot be read"):
        commsim.load_cluster("dgx-h100", nodes=2, **{"fabric.cabling": "nowhere.txt"})


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_damage_is_read_or_refused(data) -> None:
    text = discovered(3, 2, 2, 2)
    at = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 40))
    junk = data.draw(st.text(max_size=20))
    with contextlib.suppress(SpecError):
        ibnetdiscover.parse(text[:at] + junk + text[at + length :])
