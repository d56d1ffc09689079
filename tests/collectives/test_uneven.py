"""all_to_all with a size of its own for every pair, as MoE routing and uneven splits make it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commsim.collectives.algorithms.direct import Direct
from commsim.collectives.algorithms.grouped import Grouped
from commsim.collectives.algorithms.pairwise import Pairwise
from commsim.collectives.catalogue import algorithm, names
from commsim.collectives.chunks import cut
from commsim.collectives.collective import Collective
from commsim.collectives.verify import verify
from commsim.errors import CollectiveError, ScheduleError
from commsim.libraries.lookup import library as find_library
from commsim.prediction import predict
from commsim.topology.load import load_cluster

SPLITS = ((4, 20, 0), (8, 0, 12), (0, 40, 4))  # rows send 24, 20, 44; columns receive 12, 60, 16


@st.composite
def matrices(draw: st.DrawFn) -> list[list[int]]:
    n = draw(st.integers(2, 9), "ranks")
    sizes = st.one_of(st.just(0), st.integers(0, 99))
    return draw(st.lists(st.lists(sizes, min_size=n, max_size=n), min_size=n, max_size=n))


@pytest.mark.parametrize("name", names("all_to_all"))
@settings(max_examples=30, deadline=None)
@given(splits=matrices(), channels=st.integers(1, 3), dtype=st.sampled_from(["uint8", "float32"]))
def test_every_rank_gets_its_bytes(
    name: str, splits: list[list[int]], channels: int, dtype: str
) -> None:
    collective, n = Collective.uneven(splits, dtype=dtype), len(splits)
    schedule = algorithm(name).schedule(collective, n, channels)
    verify(schedule, collective)
    # However it goes, at least its own bytes leave a rank and at least those for it arrive.
    off = np.array(splits) * ~np.eye(n, dtype=bool)
    assert (schedule.sent() >= off.sum(axis=1)).all()
    assert (schedule.received() >= off.sum(axis=0)).all()
    if name != "bruck":  # which passes them on
        assert int(schedule.sent().sum()) == off.sum()


@settings(max_examples=30, deadline=None)
@given(splits=matrices(), parts=st.integers(1, 4))
def test_a_block_is_cut_into_its_parts(splits: list[list[int]], parts: int) -> None:
    chunks = cut(Collective.uneven(splits, dtype="uint8"), len(splits), parts)
    blocks = chunks.nbytes.reshape(len(splits), len(splits), parts)
    assert blocks.sum(axis=2).tolist() == splits
    assert (np.diff(blocks) <= 0).all()


def test_parts_are_whole_elements() -> None:
    chunks = cut(Collective.uneven(SPLITS, dtype="float32"), 3, 2)
    assert chunks.nbytes.tolist() == [4, 0, 12, 8, 0, 0, 4, 4, 0, 0, 8, 4, 0, 0, 20, 20, 4, 0]
    odd = cut(Collective.uneven([[0, 3], [4, 0]], dtype="float32"), 2, 2)
    assert odd.nbytes.tolist() == [0, 0, 2, 1, 2, 2, 0, 0]


def test_the_busiest_rank_gives_the_size_and_the_time() -> None:
    collective = Collective.uneven(SPLITS)
    assert collective.nbytes == 60  # what rank 1 receives
    assert collective == Collective("all_to_all", 60, splits=SPLITS)
    assert cut(collective, 3).pairs().tolist() == [[0, 20, 0], [8, 0, 12], [0, 40, 0]]
    for each in (Direct(), Grouped()):
        assert each.cost(collective, 3) == Direct().cost(collective, 3, 2)
        assert each.cost(collective, 3).nbytes == 60  # rank 1 receives 20 + 40 from others
    # Round 1: 0 to 1, 1 to 2, 2 to 0: at most 20; round 2: 0 to 2, 1 to 0, 2 to 1: at most 40.
    assert Pairwise().cost(collective, 3).nbytes == 20 + 40


@pytest.mark.parametrize("name", names("all_to_all"))
def test_an_even_matrix_is_the_even_collective(name: str) -> None:
    even, uneven = Collective("all_to_all", 60), Collective.uneven([[20] * 3] * 3)
    made = [algorithm(name).schedule(c, 3, 2) for c in (even, uneven)]
    assert list(made[0]) == list(made[1])
    assert algorithm(name).cost(even, 3, 2) == algorithm(name).cost(uneven, 3, 2)


def test_a_schedule_for_other_splits_is_refused() -> None:
    schedule = Direct().schedule(Collective.uneven(SPLITS), 3)
    turned = Collective.uneven(np.array(SPLITS).T)
    with pytest.raises(ScheduleError, match="not those"):
        verify(schedule, turned)


def test_what_is_refused() -> None:
    with pytest.raises(CollectiveError, match=r"n rows of n sizes .* rows of \[2, 1\]"):
        Collective.uneven([[1, 2], [3]])
    with pytest.raises(CollectiveError, match=r"rows of \[1\]"):
        Collective.uneven([[1]])
    with pytest.raises(CollectiveError, match=r"splits\[1\]\[0\]: .* got -3"):
        Collective.uneven([[1, 2], [-3, 4]])
    with pytest.raises(CollectiveError, match=r"splits\[0\]\[1\]: .* got 0.5"):
        Collective("all_to_all", 4, splits=((1, 0.5), (3, 4)))  # type: ignore[arg-type]
    with pytest.raises(CollectiveError, match=r"expected 60, .* got 44; Collective.uneven"):
        Collective("all_to_all", 44, splits=SPLITS)
    with pytest.raises(CollectiveError, match=r"all_gather: splits: only an all_to_all"):
        Collective("all_gather", 60, splits=SPLITS)
    with pytest.raises(CollectiveError, match=r"expected 2 rows of 2, .* got 3"):
        Collective.uneven(SPLITS, ranks=(0, 1))
    with pytest.raises(CollectiveError, match=r"expected 4 rows of 4, .* got 3"):
        cut(Collective.uneven(SPLITS), 4)


@pytest.mark.parametrize("library", ["nccl", "gloo", "mpi"])
def test_predict_takes_the_busiest_rank_for_all(library: str) -> None:
    cluster, by = load_cluster("dgx-h100"), find_library(library)
    splits = np.full((8, 8), 1 << 10)
    splits[3, 5] += 1 << 20
    uneven = predict(Collective.uneven(splits), cluster, by)
    even = predict(Collective("all_to_all", (8 << 10) + (1 << 20)), cluster, by)
    assert uneven.duration == even.duration
    assert [note for note in uneven.notes if "busiest" in note]
    assert not [note for note in even.notes if "busiest" in note]
    with pytest.raises(CollectiveError, match=r"expected 8 rows of 8"):
        predict(Collective.uneven(SPLITS), cluster, by)
