"""A host profile on other cores: what is theirs is scaled, and nothing else."""

from __future__ import annotations

import pytest

from commsim.collectives.collective import Collective
from commsim.cost.host_speed import Speed, slowed
from commsim.cost.profile import shipped
from commsim.libraries.gloo import Gloo
from tests.cost.test_host import machines, price, profile


def test_messages_bytes_and_copies_have_a_factor_each() -> None:
    # one message of 1 MB: launch 5, hop 10 and message 1 us, 0.1 ns a byte, 1 ms through the port
    asked = Collective("send_recv", 1_000_000, ranks=(0, 1), root=0)
    slow = slowed(profile(), Speed(messages=3.0, nbytes=2.0, copies=7.0))
    found = price(Gloo(), asked, machines(2), slow)
    assert found.duration == pytest.approx(3 * 16e-6 + 2 * 0.1e-3 + 1e-3)


def test_copies_are_slowed_alone() -> None:
    # 4 ranks: 1 MB before and 4 after at 1 ns a byte, and 3 MB twice through a stack at 0.1 ns
    asked, book = Collective("all_gather", 4_000_000), profile(copy_byte=1e-9)
    plain = price(Gloo(), asked, machines(4), book)
    slow = price(Gloo(), asked, machines(4), slowed(book, Speed(copies=3.0)))
    assert slow.duration - plain.duration == pytest.approx(2 * 5e-3)


@pytest.mark.parametrize("library", ["gloo", "mpi"])
def test_the_network_s_constants_stay_and_the_others_say_what_was_done(library: str) -> None:
    book = shipped(library)
    slow = slowed(book, Speed(messages=2.0, nbytes=2.0, copies=2.0))
    for name, constant in slow.constants.items():
        if constant.unit in ("s", "s/byte"):
            assert constant.value == 2 * book.constants[name].value
            assert constant.birthplace.endswith("times 2 for the cores at hand")
        else:  # shares, exponents, bytes
            assert constant == book.constants[name]
    assert slow.spreads == book.spreads
