"""Reading NCCL's topology XML: complete files, what clouds ship, and files with mistakes."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest

from commsim.errors import SpecError
from commsim.libraries.nccl.communicator import communicator
from commsim.topology.importers import nccl_xml
from commsim.topology.node import NodeTopology
from tests.libraries.nccl import machines

VENDORS = {"intel": "GenuineIntel", "amd": "AuthenticAMD", "arm": "none"}
HEAD = (
    '<system version="1">\n'
    '<cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" familyid="143" modelid="49">\n'
)
TAIL = "</cpu>\n</system>\n"


def _write(path: Path, text: str) -> Path:
    file = path / "topo.xml"
    file.write_text(text, "utf-8")
    return file


def _read(path: Path, body: str, **more: object) -> NodeTopology:
    return nccl_xml.read(_write(path, HEAD + body + TAIL), **more)  # type: ignore[arg-type]


def dump(node: NodeTopology) -> str:
    """The NCCL topology file of a machine (bus ids made up)."""
    names = [s.name for s in node.switches] + [g.name for g in node.gpus]
    names += list(dict.fromkeys(n.card for n in node.nics))
    busid = {name: f"0000:{i + 16:02x}:00.0" for i, name in enumerate(names)}
    lines = ['<system version="1">']

    def attributes(**pairs: object) -> str:
        return "".join(f" {k}={quoteattr(str(v))}" for k, v in pairs.items())

    def below(parent: str) -> None:
        for link in (k for k in node.links if k.kind == "pcie" and k.target == parent):
            name = link.source
            gpu = next((g for g in node.gpus if g.name == name), None)
            nics = [n for n in node.nics if n.card == name]
            kind = "0x030200" if gpu else "0x020700" if nics else "0x060400"
            speed = f"{link.speed:.1f} GT/s PCIe"
            lines.append(
                "<pci"
                + attributes(busid=busid[name], link_speed=speed, link_width=link.width)
                + f' class="{kind}">'
            )
            if gpu:
                lines.append(
                    "<gpu"
                    + attributes(dev=gpu.index, sm=gpu.capability, gdr=int(gpu.gpudirect))
                    + ">"
                )
                for k in node.links:
                    if k.kind == "nvlink" and name in (k.source, k.target):
                        other = k.target if k.source == name else k.source
                        tclass = "0x068000" if other == "nvswitch" else "0x030200"
                        target = busid.get(other, "0000:05:00.0")
                        lines.append(
                            "<nvlink"
                            + attributes(target=target, count=k.width, tclass=tclass)
                            + "/>"
                        )
                    if k.kind == "c2c" and k.source == name:
                        bw = k.bandwidth / k.width / 1e6
                        lines.append("<c2c" + attributes(bw=f"{bw:.0f}", count=k.width) + "/>")
                lines.append("</gpu>")
            for nic in nics:
                lines.append(
                    "<nic><net"
                    + attributes(name=nic.name, dev=nic.index, speed=f"{nic.rate * 8 / 1e6:.0f}")
                    + attributes(port=nic.port, gdr=int(nic.gpudirect))
                    + "/></nic>"
                )
            below(name)
            lines.append("</pci>")

    for cpu in node.cpus:
        lines.append(
            "<cpu"
            + attributes(numaid=cpu.numa, arch=cpu.arch, vendor=VENDORS[cpu.vendor])
            + attributes(familyid=cpu.family, modelid=cpu.model)
            + ">"
        )
        below(cpu.name)
        lines.append("</cpu>")
    lines.append("</system>")
    return "\n".join(lines)


@pytest.mark.parametrize("name", sorted(machines.COMPUTED))
def test_what_is_written_is_read_again(name: str, tmp_path: Path) -> None:
    node, hosts, gpus = machines.COMPUTED[name]
    again = nccl_xml.read(_write(tmp_path, dump(node)))
    assert len(again.gpus) == len(node.gpus)
    assert [g.index for g in again.gpus] == [g.index for g in node.gpus]
    assert [(n.name, n.rate) for n in again.nics] == [(n.name, n.rate) for n in node.nics]
    assert again.cpus == node.cpus
    for kind in ("nvlink", "pcie", "c2c"):
        written = sorted((k.width, k.bandwidth) for k in node.links if k.kind == kind)
        found = sorted((k.width, k.bandwidth) for k in again.links if k.kind == kind)
        assert found == pytest.approx(written) if not written else True
        for (w1, b1), (w2, b2) in zip(written, found, strict=True):
            assert w1 == w2
            assert b1 == pytest.approx(b2)
    if hosts == 1 and node.gpu_peer_access is None:
        domains = (((tuple(range(gpus)),), 2),)
        mine, theirs = (communicator(n, domains=domains, version=(2, 30, 7)) for n in (node, again))
        assert (mine.ring, mine.tree, mine.nvls) == (theirs.ring, theirs.tree, theirs.nvls)


def test_rates_are_physical(tmp_path: Path) -> None:
    node = _read(
        tmp_path,
        """<pci busid="0000:07:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="80"><nvlink target="0000:c4:00.0" count="2" tclass="0x068000"/>
        <nvlink target="0000:c5:00.0" count="10" tclass="0x068000"/></gpu></pci>
        <pci busid="0000:08:00.0" class="0x020700" link_speed="8.0 GT/s PCIe" link_width="8"><nic>
        <net name="eth0" dev="0" speed="25000" port="1" gdr="0"/></nic></pci>""",
    )
    pcie = {k.source: k for k in node.links if k.kind == "pcie"}
    # 16 GT/s x 16 lanes x 128/130 / 8 = 31.508 GB/s; 8 GT/s x 8 lanes x 128/130 / 8 = 7.877 GB/s
    assert pcie["gpu0"].bandwidth == pytest.approx(31.508e9, rel=1e-4)
    assert pcie[node.nics[0].card].bandwidth == pytest.approx(7.877e9, rel=1e-4)
    (nvlink,) = (k for k in node.links if k.kind == "nvlink")
    assert (nvlink.width, nvlink.bandwidth) == (12, 300e9)  # A100: 12 links of 25 GB/s
    assert node.nics[0].rate == 25e9 / 8
    assert not node.nics[0].gpudirect
    assert node.nvswitch is not None


def test_gpus_known_only_by_class_are_numbered_by_bus_id(tmp_path: Path) -> None:
    # the form of Azure's files: GPUs and NICs under a switch, no gpu, nic or net elements
    node = _read(
        tmp_path,
        """<pci busid="ffff:ff:01.0" class="0x060400" link_speed="16 GT/s" link_width="16">
        <pci busid="0003:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
        <pci busid="0103:00:00.0" class="0x020700" link_speed="16 GT/s" link_width="16"/></pci>
        <pci busid="ffff:ff:02.0" class="0x060400" link_speed="16 GT/s" link_width="16">
        <pci busid="0001:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/></pci>""",
        part="A100-SXM4-40GB",
        capability=80,
        nvlinks=12,
        nvswitch=True,
        nic_rate=25e9,
    )
    assert [g.busid for g in node.gpus] == ["0001:00:00.0", "0003:00:00.0"]
    assert [(g.part, g.capability) for g in node.gpus] == [("A100-SXM4-40GB", 80)] * 2
    assert [n.rate for n in node.nics] == [25e9]
    assert sorted(k.bandwidth for k in node.links if k.kind == "nvlink") == [300e9, 300e9]
    assert all(k.speed == 16.0 for k in node.links if k.kind == "pcie")


def test_the_pci_device_names_the_gpu(tmp_path: Path) -> None:
    node = _read(
        tmp_path,
        """<pci busid="0000:10:1c.0" class="0x030200" vendor="0x10de" device="0x20b0"
        link_speed="8 GT/s" link_width="16"/>""",
    )
    assert (node.gpus[0].part, node.gpus[0].capability) == ("A100-SXM4-40GB", 80)


def test_speeds_nccl_does_not_know(tmp_path: Path) -> None:
    node = _read(
        tmp_path,
        """<pci busid="0000:45:00.0">
        <pci busid="0000:4f:00.0" link_speed="32 GT/s PCIe/s" link_width="16"/>
        <pci busid="0000:50:00.0" link_speed="" link_width="0"/></pci>""",
    )
    odd, empty = (k for k in node.links if k.target == "switch-0000:45:00.0")
    # NCCL falls back to its third generation for both, the physical link is what it says
    assert (odd.speed, empty.speed) == (0.0, 0.0)
    assert odd.bandwidth == pytest.approx(63.015e9, rel=1e-4)
    assert empty.width == 16
    assert empty.bandwidth == pytest.approx(15.754e9, rel=1e-4)


def test_files_that_mark_no_gpu_keep_what_they_say(tmp_path: Path) -> None:
    # AWS p5: switches with NICs, no GPUs; AWS g5: bare functions under the CPUs
    switches = "".join(
        f'<pci busid="0000:{s}0:00.0"><pci busid="0000:{s}1:00.0"/>'
        f'<pci busid="0000:{s}2:00.0"/></pci>'
        for s in (4, 5)
    )
    node = _read(tmp_path, switches)
    assert node.gpus == ()
    assert len(node.switches) == 6
    placed = _read(tmp_path, switches, gpus=2, capability=90)
    parent = {k.source: k.target for k in placed.links if k.kind == "pcie"}
    assert [parent[g.name] for g in placed.gpus] == ["switch-0000:40:00.0", "switch-0000:50:00.0"]
    assert len(placed.nics) == 4
    bare = "".join(f'<pci busid="0000:00:1{i}.0"/>' for i in (6, 7, 5))
    node = _read(tmp_path, bare, gpus=2)
    assert [g.busid for g in node.gpus] == ["0000:00:16.0", "0000:00:17.0"]
    assert [n.busid for n in node.nics] == ["0000:00:15.0"]


def test_gpu_that_points_at_itself_and_nic_on_a_cpu(tmp_path: Path) -> None:
    node = _read(
        tmp_path,
        """<pci busid="0001:00:00.0" class="0x030200" link_speed="" link_width="0">
        <gpu dev="0" sm="80" rank="0" gdr="1">
        <nvlink target="0001:00:00.0" count="12" tclass="0x030200"/></gpu></pci>
        <nic><net name="eth0" dev="0" speed="100000" port="0" gdr="0"/></nic>""",
    )
    assert [k.kind for k in node.links] == ["pcie", "pcie"]
    assert node.nics[0].rate == 12.5e9


def test_ports_of_one_card_share_its_link(tmp_path: Path) -> None:
    port = """<pci busid="0000:08:00.{0}" class="0x020700" link_width="16"
    link_speed="16.0 GT/s PCIe"><nic>
    <net name="mlx5_{0}" dev="{0}" speed="200000" port="1" gdr="1"/></nic></pci>"""
    node = _read(tmp_path, port.format(0) + port.format(1))
    assert {n.card for n in node.nics} == {"card-0000:08:00.0"}
    assert len([k for k in node.links if k.kind == "pcie"]) == 1


def test_broadcom_switches_of_two_levels_are_one(tmp_path: Path) -> None:
    ids = 'vendor="0x1000" device="0xc030" subsystem_vendor="0x1000" subsystem_device="0x{}000"'
    node = _read(
        tmp_path,
        f"""<pci busid="0000:10:00.0" class="0x060400" {ids.format(0)}>
        <pci busid="0000:11:00.0" class="0x060400" {ids.format(1)}>
        <pci busid="0000:12:00.0" class="0x030200"/></pci></pci>""",
    )
    assert [s.busid for s in node.switches] == ["0000:10:00.0"]
    assert {k.source: k.target for k in node.links}["gpu0"] == "switch-0000:10:00.0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<system", "not XML"),
        ('<graphs version="1"><graph/></graphs>', "graph file"),
        ('<system version="2"><cpu numaid="0"/></system>', "expected 1"),
        ('<system version="1"></system>', "no <cpu>"),
        ('<system version="1"><cpu numaid="x"/></system>', "numaid"),
        ('<system version="1"><cpu numaid="0" arch="riscv"/></system>', "arch"),
        ('<system version="1"><cpu numaid="0"><pci busid="7"/></cpu></system>', "busid"),
        (
            '<system version="1"><cpu numaid="0"/><cpu numaid="0"/></system>',
            "occurs twice",
        ),
    ],
)
def test_mistakes_name_file_line_and_cure(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        nccl_xml.read(_write(tmp_path, text))
    for problem in caught.value.problems:
        assert problem.startswith("topo.xml: line ")
        assert "\n" not in problem


def test_all_mistakes_come_at_once(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        _read(tmp_path, '<pci busid="1"/>\n<pci busid="2"/>\n')
    assert [p.split(":")[1] for p in caught.value.problems] == [" line 3", " line 4"]


def test_missing_file_and_wrong_number_of_gpus(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read"):
        nccl_xml.read(tmp_path / "absent.xml")
    with pytest.raises(SpecError, match="holds 1 GPUs, expected 4"):
        _read(tmp_path, '<pci busid="0000:07:00.0" class="0x030200"/>', gpus=4)
