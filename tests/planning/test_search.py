"""The search against trying everything: it may skip work, never an answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

import commsim
from commsim.planning.bound import Costs
from commsim.planning.buckets import best, with_size
from commsim.planning.engine import Engine
from commsim.planning.search import Candidate, Found, Front, search
from commsim.planning.space import ABILITIES, Space, ladders, layouts, variants
from commsim.workload.layouts.rules import problems
from commsim.workload.memory import memory
from commsim.workload.step import predict_step, step_with
from commsim.workload.trust import shipped, tags_of


def space_of(
    model: commsim.Model, cluster: commsim.Cluster, framework: str = "megatron", batch: int = 32
) -> Space:
    return Space(
        model=model, cluster=cluster, global_batch=batch, seq_len=2048, framework=framework
    )


def tried(space: Space) -> list[tuple[float, float, commsim.Layout]]:
    """(s, bytes, layout) of every layout that fits, with its best buckets: no search, no bound."""
    found = []
    for layout in layouts(space):
        took = memory(space.model, space.cluster, layout)
        if took.fits:
            step = predict_step(space.model, space.cluster, layout)
            step = with_size(step, best(step))
            found.append((step.duration, took.worst.needed, layout))
    return found


SPACES = [
    ("model", "megatron"), ("model", "torchtitan"), ("model", "fsdp"), ("model", "deepspeed"),
    ("model", "ddp"), ("experts", "megatron"),
]  # fmt: skip


@pytest.fixture(scope="module", params=SPACES, ids=lambda p: "-".join(p))
def case(
    request: pytest.FixtureRequest, cluster: commsim.Cluster
) -> tuple[Space, list[tuple[float, float, commsim.Layout]]]:
    name, framework = request.param
    model = request.getfixturevalue(name)
    where = replace(cluster, nodes=1) if framework in ("megatron", "torchtitan") else cluster
    if name == "experts":
        where = commsim.load_cluster("dgx-h100", **{"node.gpus": 4, "node.nics.count": 4})
    space = space_of(model, where, framework, batch=8 if name == "experts" else 16)
    return space, tried(space)


def test_the_best_are_those_of_trying_everything(
    case: tuple[Space, list[tuple[float, float, commsim.Layout]]],
) -> None:
    space, everything = case
    found = search(space, shipped(), Engine(), top=10)
    assert found.best[0].duration == min(duration for duration, *_ in everything)
    # One layout for each set of variants: the fastest of them.
    fastest: dict[commsim.Layout, float] = {}
    for duration, _, layout in everything:
        plain = replace(
            layout, order="", overlap_grad_reduce=True, overlap_param_gather=True,
            tp_comm_overlap=False,
        )  # fmt: skip
        fastest[plain] = min(duration, fastest.get(plain, duration))
    assert [c.duration for c in found.best] == sorted(fastest.values())[: len(found.best)]
    assert found.searched == sum(found.lacking.values()) + len(everything)
    assert found.fits == len(fastest)


def test_the_front_is_that_of_trying_everything(
    case: tuple[Space, list[tuple[float, float, commsim.Layout]]],
) -> None:
    space, everything = case
    found = search(space, shipped(), Engine(), top=3)
    expected, least = [], float("inf")
    for duration, needed, _ in sorted(everything, key=lambda t: t[:2]):
        if needed < least:
            expected.append((duration, needed))
            least = needed
    assert [(c.duration, c.needed) for c in found.front] == expected


def test_the_least_memory_is_that_of_trying_everything(
    case: tuple[Space, list[tuple[float, float, commsim.Layout]]],
) -> None:
    space, everything = case
    found = search(space, shipped(), Engine(), objective="memory", top=3)
    least = min(everything, key=lambda t: t[1::-1])
    assert (found.best[0].needed, found.best[0].duration) == (least[1], least[0])


def test_no_step_beats_its_bound_and_known_chunks_change_nothing(
    case: tuple[Space, list[tuple[float, float, commsim.Layout]]],
) -> None:
    space, everything = case
    values = shipped().values(tags_of(space.cluster, everything[0][2]))
    costs = Costs(space.model, space.cluster, values)
    for duration, _, layout in everything:
        assert costs.bound(layout) <= duration * (1 + 1e-12)
        known = step_with(space.model, space.cluster, layout, values, made=costs.made(layout))
        assert with_size(known, best(known)).duration == duration


@pytest.mark.parametrize("framework", ABILITIES)
def test_layouts_are_valid_and_different(
    framework: str, model: commsim.Model, experts: commsim.Model, cluster: commsim.Cluster
) -> None:
    for one in (model, experts):
        found = list(layouts(space_of(one, cluster, framework, batch=16)))
        assert found
        assert len(set(found)) == len(found)
        for layout in found:
            assert problems(layout, one, cluster) == ()


def test_variants_take_the_same_memory_and_ladders_rise(
    model: commsim.Model, cluster: commsim.Cluster
) -> None:
    space = space_of(model, cluster)
    for ladder in ladders(space):
        needed = [memory(model, cluster, layout).worst.needed for layout in ladder]
        assert needed == sorted(needed)
        for one in variants(ladder[0], space):
            assert memory(model, cluster, one).worst.needed == needed[0]


def test_overlapped_tensor_messages_never_raise_the_bound(
    model: commsim.Model, cluster: commsim.Cluster
) -> None:
    # The search takes one bound for all variants: that of the first.
    space = space_of(model, cluster)
    values = shipped().values(tags_of(cluster, commsim.Layout()))
    costs = Costs(model, cluster, values)
    for ladder in ladders(space):
        first, *others = (costs.bound(one) for one in variants(ladder[0], space))
        assert all(first <= other * (1 + 1e-12) for other in others)


def test_front_keeps_what_nothing_beats() -> None:
    front = Front()
    assert front.add(3.0, 5.0)
    assert front.add(1.0, 9.0)
    assert not front.add(3.0, 6.0)
    assert not front.add(4.0, 5.0)
    assert front.add(2.0, 5.0)  # beats (3, 5)
    assert front.beats(2.5, 5.0)
    assert not front.beats(1.5, 5.0)
    assert front.add(1.0, 8.0)  # beats (1, 9)
    assert front.beats(1.0, 9.0)
    assert not front.beats(0.9, 99.0)


def test_a_search_says_what_it_did(model: commsim.Model, cluster: commsim.Cluster) -> None:
    told: list[tuple[str, int, int]] = []
    found = search(
        space_of(model, cluster), shipped(), Engine(), top=2,
        progress=lambda what, done, of: told.append((what, done, of)),
    )  # fmt: skip
    assert isinstance(found, Found)
    assert isinstance(found.best[0], Candidate)
    assert {what for what, *_ in told} == {"memory", "time"}
    assert all(done <= of for _, done, of in told)
    assert found.timed <= found.fits
