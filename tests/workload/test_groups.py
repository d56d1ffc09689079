"""Rank groups, against the examples in Megatron-LM's own documentation and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commsim.errors import UnknownNameError
from commsim.workload.layout import Layout
from commsim.workload.layouts.groups import KINDS, groups


def test_the_example_of_megatron() -> None:
    """initialize_model_parallel's docstring: 16 GPUs, tp=2, pp=4."""
    found = groups(Layout(tp=2, pp=4, dp=2))
    assert found.all("dp") == (
        (0, 2), (1, 3), (4, 6), (5, 7), (8, 10), (9, 11), (12, 14), (13, 15)
    )  # fmt: skip
    assert found.all("tp") == tuple((i, i + 1) for i in range(0, 16, 2))
    assert found.all("pp") == ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))


def test_context_parallelism_lies_inside_data_parallelism() -> None:
    found = groups(Layout(tp=2, cp=2, dp=2, pp=1))
    assert found.ranks("cp") == (0, 2)
    assert found.ranks("batch") == (0, 4)
    assert found.ranks("dp", 1) == (1, 3, 5, 7)


def test_experts_are_spread_over_neighbours() -> None:
    """tp=2, dp=4, ep=4, etp=1: 8 ranks hold the 4 parts of the experts twice."""
    found = groups(Layout(tp=2, dp=4, ep=4, etp=1))
    assert found.all("ep") == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert found.all("edp") == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert found.ranks("etp", 5) == (5,)


def test_experts_cut_as_the_rest_of_the_layer() -> None:
    found = groups(Layout(tp=2, dp=4, ep=2))
    assert found.ranks("ep", 1) == (1, 3)
    assert found.ranks("edp", 1) == (1, 5)
    assert found.ranks("etp", 3) == (2, 3)


def test_shard_groups_are_neighbours() -> None:
    found = groups(Layout(dp=8, hsdp=4))
    assert found.all("shard") == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert found.ranks("replicate", 5) == (1, 5)
    assert groups(Layout(dp=8)).ranks("shard") == tuple(range(8))
    assert groups(Layout(dp=8)).ranks("replicate", 3) == (3,)


def test_shard_groups_take_context_parallel_ranks_first() -> None:
    found = groups(Layout(tp=2, cp=2, dp=4, hsdp=4))
    assert found.ranks("shard") == (0, 2, 4, 6)
    assert found.ranks("replicate") == (0, 8)


def test_shards_of_experts() -> None:
    """dp=8 in shard groups of 4 and ep=2: within a shard group, two ranks hold the same experts."""
    found = groups(Layout(dp=8, hsdp=4, ep=2))
    assert found.ranks("expert_shard") == (0, 2)
    assert found.ranks("expert_replicate") == (0, 4)


def test_tied_embeddings_join_first_and_last_stage() -> None:
    found = groups(Layout(tp=2, pp=4))
    assert found.all("embedding") == ((0, 6), (1, 7))
    assert groups(Layout(tp=2)).ranks("embedding", 1) == (1,)


def test_another_order() -> None:
    """Pipeline before data parallelism: tp=2, pp=2, dp=2."""
    found = groups(Layout(tp=2, pp=2, dp=2, order="tp-cp-ep-pp-dp"))
    assert found.ranks("pp") == (0, 2)
    assert found.ranks("dp") == (0, 4)


def test_a_placement_renames_the_ranks() -> None:
    found = groups(Layout(tp=2, dp=2, placement=(3, 1, 0, 2)))
    assert found.all("tp") == ((3, 1), (0, 2))
    assert found.ranks("dp", 3) == (3, 0)


def test_an_unknown_kind() -> None:
    with pytest.raises(UnknownNameError, match="'expert_shard'"):
        groups(Layout()).ranks("expert_shards")


def test_sixteen_thousand_ranks() -> None:
    """Llama 3 405B's second layout: tp=8, cp=1, dp=128, pp=16."""
    found = groups(Layout(tp=8, pp=16, dp=128))
    assert found.size("dp") == 128
    assert found.ranks("dp") == tuple(range(0, 1024, 8))
    assert found.array("world").shape == (1, 16384)


small = st.sampled_from([1, 2, 3, 4])


orders = st.sampled_from(["tp-cp-ep-dp-pp", "cp-tp-ep-pp-dp"])


@given(small, small, small, small, st.integers(0, 3), orders)
def test_groups_of_a_kind_hold_every_rank_once(
    tp: int, cp: int, dp: int, pp: int, pick: int, order: str
) -> None:
    ranks = tp * cp * dp
    ep = next(n for n in range(ranks // (1 + pick), ranks + 1) if n and ranks % n == 0)
    shards = [n for n in range(1, dp * cp + 1) if (dp * cp) % n == 0]
    layout = Layout(
        tp=tp, cp=cp, dp=dp, pp=pp, ep=ep, etp=1, order=order, hsdp=shards[pick % len(shards)]
    )
    found = groups(layout)
    for kind in KINDS:
        if kind in ("embedding", "expert_shard", "expert_replicate"):
            continue
        array = found.array(kind)
        assert sorted(array.ravel().tolist()) == list(range(layout.world)), kind
        rank = int(array[-1, -1])
        assert found.ranks(kind, rank) == tuple(array[-1])
        assert np.all(array[:, 0] == array.min(axis=1))
        assert found.size(kind) == array.shape[1]
