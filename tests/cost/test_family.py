"""GPU families, their clocks and the hosts of their time."""

from __future__ import annotations

import pytest

from commsim.cost.family import BOOST_GHZ, GENERATIONS, YEAR, clock, generation, host
from commsim.topology.load import load_cluster


@pytest.mark.parametrize(
    ("preset", "family"),
    [
        ("dgx-1v", "volta"), ("dgx-a100", "ampere"), ("dgx-h100", "hopper"), ("gh200", "hopper"),
        ("dgx-b200", "blackwell"), ("mi250x", "cdna2"), ("mi300x", "cdna3"), ("mi355x", "cdna4"),
    ],
)  # fmt: skip
def test_a_machine_belongs_to_its_family(preset: str, family: str) -> None:
    assert generation(load_cluster(preset)) == family


def test_every_family_has_a_clock_and_a_year() -> None:
    families = {*GENERATIONS.values(), "cdna2", "cdna3", "cdna4"}
    assert families == set(BOOST_GHZ) == set(YEAR)


def test_clocks_and_hosts() -> None:
    assert clock("ampere") == pytest.approx(1.9 / 1.41)
    assert host("hopper") == 1.0
    assert host("ampere") == pytest.approx(1.06**2)  # a thread of 2020 takes longer
    assert host("cdna4") == pytest.approx(1.06**-3)
    assert clock("unknown") == host("unknown") == 1.0
