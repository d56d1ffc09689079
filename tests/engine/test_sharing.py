"""The solver against linear programs: the classical definition, level by level."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from commsim.engine.sharing import max_min_rates

Floats = NDArray[np.float64]


def by_linear_programs(use: Floats, capacity: Floats, limit: Floats, share: Floats) -> Floats:
    """Max-min rates of flows that put `use[link, flow]` on links: raise the least rate per share as
    far as it goes, fix every flow that cannot go higher while the others are at least there,
    repeat.
    """
    links, flows = use.shape
    rates = np.full(flows, np.nan)
    while np.isnan(rates).any():
        free = np.isnan(rates)
        bounds = [
            (0, min(limit[i], 1e6)) if free[i] else (rates[i], rates[i]) for i in range(flows)
        ]
        # Maximise t with rate >= share t for every free flow; then each one's own most at that t.
        rows = np.zeros((flows, flows + 1))
        rows[np.arange(flows), np.arange(flows)] = -free.astype(float)
        rows[:, flows] = free * share
        table = np.vstack([np.hstack([use, np.zeros((links, 1))]), rows])
        most = np.concatenate([capacity, np.zeros(flows)])
        goal = np.zeros(flows + 1)
        goal[flows] = -1
        level = -linprog(goal, A_ub=table, b_ub=most, bounds=[*bounds, (0, None)]).fun
        at_least = [
            (level * share[i] * (1 - 1e-10), b[1]) if free[i] else b for i, b in enumerate(bounds)
        ]
        for i in np.flatnonzero(free):
            goal = np.zeros(flows)
            goal[i] = -1
            top = -linprog(goal, A_ub=use, b_ub=capacity, bounds=at_least).fun
            if top <= level * share[i] * (1 + 1e-6):
                rates[i] = level * share[i]
    return rates


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_equals_the_definition_by_linear_programs(data: st.DataObject) -> None:
    links = data.draw(st.integers(1, 5))
    flows = data.draw(st.integers(1, 6))
    weights = st.sampled_from([0.0, 0.0, 1.0, 1.0, 0.5, 2.0])
    use = np.array([[data.draw(weights) for _ in range(flows)] for _ in range(links)])
    capacity = np.array([data.draw(st.sampled_from([1.0, 3.0, 10.0, 12.5])) for _ in range(links)])
    limit = np.array([data.draw(st.sampled_from([0.7, 4.0, 100.0])) for _ in range(flows)])
    share = np.array([data.draw(st.sampled_from([1.0, 1.0, 2.0, 8.0])) for _ in range(flows)])
    link, flow = np.nonzero(use)
    rates = max_min_rates(flow, link, use[link, flow], capacity, limit, share)
    assert rates == pytest.approx(by_linear_programs(use, capacity, limit, share), rel=1e-6)
    assert (use @ rates <= capacity * (1 + 1e-9)).all()


def test_three_flows_on_two_links() -> None:
    # Bertsekas and Gallager: the long flow gets half of the narrow link, the short ones the rest.
    flow, link = np.array([0, 0, 1, 2]), np.array([0, 1, 0, 1])
    rates = max_min_rates(
        flow, link, np.ones(4), np.array([10.0, 4.0]), np.full(3, np.inf), np.ones(3)
    )
    assert rates.tolist() == [2.0, 8.0, 2.0]


def test_limits_spray_and_flows_on_nothing() -> None:
    flow, link = np.array([0, 1, 2, 2]), np.array([0, 0, 1, 2])
    weight = np.array([1.0, 2.0, 0.5, 0.5])
    limit = np.array([1.0, np.inf, np.inf, np.inf])
    rates = max_min_rates(flow, link, weight, np.array([7.0, 5.0, 6.0]), limit, np.ones(4))
    assert rates.tolist() == [1.0, 3.0, 10.0, np.inf]


def test_a_flow_that_stands_for_three_gets_three_parts() -> None:
    flow, link = np.array([0, 1]), np.array([0, 0])
    rates = max_min_rates(
        flow, link, np.ones(2), np.array([8.0]), np.full(2, np.inf), np.array([3.0, 1.0])
    )
    assert rates.tolist() == [6.0, 2.0]
