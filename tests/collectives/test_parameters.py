"""What the contract tests ask of every algorithm, asked of parameters other than the defaults."""

from __future__ import annotations

import pytest

from commsim.collectives.algorithm import Algorithm
from commsim.collectives.algorithms.collnet import CollNet
from commsim.collectives.algorithms.grouped import Grouped
from commsim.collectives.algorithms.hierarchical import Hierarchical
from commsim.collectives.algorithms.nvls import Nvls
from commsim.collectives.algorithms.nvls_tree import NvlsTree
from commsim.collectives.collective import Collective
from commsim.collectives.verify import verify
from commsim.engine import compiled
from commsim.engine.ideal import Ports
from commsim.engine.network import lay
from commsim.engine.plan import make_plan, punctual

EXACT: tuple[Algorithm, ...] = (
    Grouped(window=1),
    Grouped(window=3),
    Grouped(window=5, group=4),
    Nvls(pieces=1),
    CollNet(group=1, pieces=3),
    CollNet(group=4, pieces=1),
    Hierarchical(group=4, inside="direct", across="direct"),
    Hierarchical(inside="nvls", across="ring"),
    Hierarchical(group=3, inside=Nvls(pieces=2), across=Nvls(pieces=1)),
)
ABOUT: tuple[Algorithm, ...] = (
    NvlsTree(pieces=1),
    NvlsTree(group=4, pieces=8),
    CollNet(group=4, pieces=8),
    Hierarchical(group=4, pieces=3),
    Nvls(pieces=3),
    Nvls(pieces=16),
)
RANKS = (2, 3, 4, 6, 7, 8, 12, 16)
DIVIDES = 64 * 64 * 9 * 7


@pytest.mark.parametrize("n", RANKS)
@pytest.mark.parametrize("each", EXACT + ABOUT, ids=repr)
def test_it_computes_and_takes_what_its_closed_form_says(each: Algorithm, n: int) -> None:
    for operation in sorted(each.operations):
        for nbytes, channels in ((1000, 2), (DIVIDES, 1), (DIVIDES, 2)):
            collective = Collective(operation, nbytes, dtype="uint8")
            schedule = each.schedule(collective, n, channels)
            verify(schedule, collective)
            if nbytes < DIVIDES:
                continue
            cost = each.cost(collective, n, channels)
            assert cost.exact or each in ABOUT
            for latency in (1e-9, 1e-4):
                network = Ports(n=n, bandwidth=1e9, latency=latency)
                plan = make_plan([punctual(lay(schedule, network))], network.capacity)
                expected = cost.duration(latency=latency, bandwidth=1e9)
                played = compiled.play(plan).arrived.max()
                assert played == pytest.approx(expected, rel=1e-9 if cost.exact else 0.25)
