"""What the lab builds, told as text, as values and as a cluster."""

from __future__ import annotations

import pytest

from commsim.errors import SpecError
from validation.lab.layout import burst, cluster, gso, parse


def test_one_switch() -> None:
    layout = parse("4@500Mbit/s")
    assert (layout.n, layout.link, layout.uplink) == (4, 62.5e6, 0)
    assert (layout.name, layout.shape) == ("star:4@500", "star")
    machines = cluster(layout)
    assert (machines.nodes, machines.gpus_per_node) == (4, 1)
    assert [nic.rate for nic in machines.node.nics] == [62.5e6]


def test_two_levels() -> None:
    layout = parse("2x3@1Gbit/s,150Mbit/s")
    assert (layout.machines, layout.per_machine, layout.n) == (2, 3, 6)
    assert layout.slowest == 18.75e6
    assert layout.shape == "two-level:2x3"
    machines = cluster(layout)
    assert (machines.nodes, machines.gpus_per_node) == (2, 3)
    assert [nic.rate for nic in machines.node.nics] == [18.75e6]  # the uplink is the machine's port
    assert {link.bandwidth for link in machines.node.links} == {125e6}


@pytest.mark.parametrize(
    "text",
    ["4", "4@500", "1@1Gbit/s", "2x3@1Gbit/s", "4@1Gbit/s,1Gbit/s", "65@1Gbit/s", "4@0Gbit/s", ""],
)
def test_what_cannot_be_built_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(SpecError) as error:
        parse(text)
    assert "\n" not in str(error.value)
    assert text in str(error.value)


@pytest.mark.parametrize("mbit", [10, 100, 300, 500, 1000, 2000])
def test_the_largest_packet_passes_the_bucket_whole(mbit: int) -> None:
    rate = mbit * 1e6 / 8
    assert 9014 < gso(rate) < burst(rate)
