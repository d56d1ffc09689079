from __future__ import annotations

import pytest

from commsim.cli._arguments import (
    read_dtype,
    read_operation,
    read_pairs,
    read_ranks,
    read_value,
)
from commsim.errors import CollectiveError, SpecError, UnknownNameError


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("all_reduce", "all_reduce"),
        ("AllReduce", "all_reduce"),
        ("all-reduce", "all_reduce"),
        ("all_reduce_perf", "all_reduce"),
        ("alltoall", "all_to_all"),
        ("alltoall_perf", "all_to_all"),
        ("all_to_all_single", "all_to_all"),
        ("sendrecv", "send_recv"),
        ("all_gather_into_tensor", "all_gather"),
        ("reduce_scatter_tensor", "reduce_scatter"),
        ("reduce", "reduce"),
        ("barrier", "barrier"),
    ],
)
def test_spellings_of_operations(text: str, name: str) -> None:
    assert read_operation(text) == name


def test_an_unknown_operation_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'all_reduce'"):
        read_operation("all_reduse")


def test_names_of_types() -> None:
    assert read_dtype("half") == read_dtype("fp16") == read_dtype("float16") == "float16"
    assert read_dtype("bfloat16") == "bfloat16"
    with pytest.raises(UnknownNameError, match="float16"):
        read_dtype("float17")


def test_ranks_and_ranges() -> None:
    assert read_ranks(None) is None
    assert read_ranks("0,8,16") == (0, 8, 16)
    assert read_ranks("0-3,16") == (0, 1, 2, 3, 16)
    assert read_ranks(" 4 - 5 , 1 ") == (4, 5, 1)


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,,2", "-1", "0-", "1.5"])
def test_ranks_that_are_none(text: str) -> None:
    with pytest.raises(CollectiveError, match="--ranks: expected ranks such as 0-7,16"):
        read_ranks(text)


def test_pairs_report_every_problem() -> None:
    assert read_pairs("--set", "a=1", ["a.b = 3", "c=x=y"]) == {"a.b": "3", "c": "x=y"}
    with pytest.raises(SpecError) as caught:
        read_pairs("--set", "node.nics.count=4", ["nodes", "=4"])
    assert len(caught.value.problems) == 2


def test_values_are_what_a_file_would_hold() -> None:
    assert [read_value(t) for t in ("4", "2.0", "true", "False", "400Gbit/s")] == [
        4, 2.0, True, False, "400Gbit/s",
    ]  # fmt: skip
    assert isinstance(read_value("4"), int)
