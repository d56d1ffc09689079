from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from .conftest import Ran

Command = Callable[[str], Ran]


def rows(ran: Ran) -> list[list[str]]:
    """Data rows as a parser of nccl-tests logs reads them: the first word is a whole number."""
    return [line.split() for line in ran.lines if re.match(r"\s*\d+\s", line)]


def near(text: str, value: float) -> bool:
    """A printed figure is the value, to half of its last digit."""
    places = len(text.partition(".")[2])
    return abs(float(text) - value) <= 0.51 * 10**-places


def test_columns_are_those_of_nccl_tests(commsim: Command) -> None:
    ran = commsim("sweep dgx-h100 all_reduce --nodes 2 -b 8 -e 8G -f 2")
    assert (ran.code, ran.err) == (0, "")
    assert all(re.match(r"#|\s*\d+\s", line) for line in ran.lines)
    names = next(line for line in ran.lines if "redop" in line)
    assert names.split() == [
        "#", "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong",
        "low", "high", "algorithm", "protocol", "channels",
    ]  # fmt: skip
    found = rows(ran)
    assert [int(row[0]) for row in found] == [2**k for k in range(3, 34)]
    # flush right under their names, so that the columns line up with a measured log's
    for line in (line for line in ran.lines if re.match(r"\s*\d+\s", line)):
        for word in ("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong"):
            end = names.index(f"{word} ") + len(word)
            assert line[end - 1] != " ", (word, line)
            assert line[end] == " ", (word, line)


def test_figures_follow_from_one_another(commsim: Command) -> None:
    line = "sweep dgx-h100 all_reduce --nodes 2 -b 1K -e 1G -f 4"
    exact = commsim(f"{line} --json").json
    found = rows(commsim(line))
    assert len(found) == len(exact) == 11  # 2^10, 2^12 .. 2^30
    for row, answer in zip(found, exact, strict=True):
        size, count, kind, redop, root, time, algbw, busbw, wrong, low, high = row[:11]
        duration = answer["duration_s"]
        assert int(size) == answer["size_bytes"]
        assert int(count) == int(size) // 4
        assert (kind, redop, root, wrong) == ("float", "sum", "-1", "N/A")
        assert near(time, duration * 1e6)
        assert near(algbw, int(size) / duration / 1e9)
        assert near(busbw, int(size) / duration / 1e9 * 2 * 15 / 16)
        assert float(low) <= float(time) <= float(high)
        assert row[11:] == [answer["algorithm"], answer["protocol"], str(answer["channels"])]


@pytest.mark.parametrize(
    ("operation", "factor", "redop", "root", "shared"),
    [
        ("all_gather", 15 / 16, "none", "-1", True),
        ("reduce_scatter", 15 / 16, "sum", "-1", True),
        ("alltoall", 15 / 16, "none", "-1", True),
        ("broadcast", 1, "none", "0", False),
        ("reduce", 1, "sum", "0", False),
        ("gather", 15 / 16, "none", "0", True),
        ("scatter", 15 / 16, "none", "0", True),
        ("sendrecv", 1, "none", "-1", False),
    ],
)
def test_every_operation_counts_as_nccl_tests(
    commsim: Command, operation: str, factor: float, redop: str, root: str, shared: bool
) -> None:
    line = f"sweep dgx-h100 {operation} --nodes 2 -b 1M -e 1M --dtype half"
    answer = commsim(f"{line} --json").json[0]
    (row,) = rows(commsim(line))
    assert row[:5] == [
        str(2**20), str(2**20 // 2 // (16 if shared else 1)), "half", redop, root,
    ]  # fmt: skip
    assert near(row[7], 2**20 / answer["duration_s"] / 1e9 * factor)


def test_sizes_below_an_element_a_rank_are_left_out(commsim: Command) -> None:
    ran = commsim("sweep dgx-h100 all_gather --nodes 2 -b 8 -e 128")
    # 16 ranks x 4 bytes: 64 is the first whole size; 8, 16 and 32 go
    assert [row[0] for row in rows(ran)] == ["64", "128"]
    assert any(line.startswith("# 3 smaller sizes left out") for line in ran.lines)


def test_steps_add(commsim: Command) -> None:
    found = rows(commsim("sweep dgx-h100 all_reduce -b 1M -e 4M -i 1M"))
    assert [int(row[0]) for row in found] == [2**20, 2 * 2**20, 3 * 2**20, 4 * 2**20]


def test_average_is_the_mean_of_the_rows(commsim: Command) -> None:
    ran = commsim("sweep dgx-h100 all_reduce -b 256M -e 1G")
    busbw = [float(row[7]) for row in rows(ran)]
    last = next(line for line in ran.lines if line.startswith("# Avg bus bandwidth"))
    assert float(last.split(":")[1]) == pytest.approx(sum(busbw) / len(busbw), abs=0.01)


def test_a_barrier_is_one_row(commsim: Command) -> None:
    found = rows(commsim("sweep dgx-h100 barrier"))
    assert len(found) == 1
    assert found[0][:2] == ["0", "0"]
