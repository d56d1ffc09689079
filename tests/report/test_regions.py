from __future__ import annotations

from commsim.report.regions import Region, regions_of


def test_regions_follow_one_another_without_a_gap() -> None:
    """A made-up library: LL below 1000 bytes, Simple from there, and no protocol from 4096."""

    def choose(nbytes: int) -> tuple[str, str]:
        if nbytes >= 4096:
            return "p2p", ""
        return "ring", "LL" if nbytes < 1000 else "Simple"

    assert regions_of(choose, low=8, high=8192) == (
        Region(low=8, high=1000, choice="ring/LL"),
        Region(low=1000, high=4096, choice="ring/Simple"),
        Region(low=4096, high=8192, choice="p2p"),
    )


def test_one_choice_is_one_region() -> None:
    assert regions_of(lambda nbytes: ("ring", "LL"), low=8, high=64) == (
        Region(low=8, high=64, choice="ring/LL"),
    )
