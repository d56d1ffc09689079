"""GOAL text, read back by a parser that knows only its grammar."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from commsim.collectives.catalogue import algorithm, names
from commsim.collectives.collective import Collective
from commsim.collectives.program import Program, from_function
from commsim.errors import ScheduleError
from commsim.traces.goal import Goal, lines
from commsim.traces.trace import Trace
from tests.traces.played import Played, Task, check

SERVED = [(n, o) for n in names() for o in sorted(algorithm(n).operations)]
MESSAGE = re.compile(r"(send|recv) (\d+)b (?:to|from) (\d+) tag (\d+) cpu (\d+)")


def played(text: str) -> tuple[int, Played]:
    """The number of ranks, and what they do."""
    head, *ranks = re.split(r"^rank ", text, flags=re.MULTILINE)
    result = Played(sends={}, receives={}, local=set(), waits={})
    count = re.fullmatch(r"num_ranks (\d+)\s*", head)
    assert count
    assert [int(r.split()[0]) for r in ranks] == list(range(int(count[1])))
    for rank, block in enumerate(ranks):
        body = re.fullmatch(rf"{rank} \{{\n(.*)\}}\s*", block, re.DOTALL)
        assert body
        tasks: dict[str, Task] = {}
        for line in body[1].splitlines():
            if before := re.fullmatch(r"(\w+) requires (\w+)", line):
                result.waits[tasks[before[1]]].add(tasks[before[2]])  # both have been named
                continue
            label, task = line.split(": ")
            assert label not in tasks
            if found := MESSAGE.fullmatch(task):
                tasks[label] = (rank, int(found[4]))
                side = result.sends if found[1] == "send" else result.receives
                assert int(found[4]) not in side  # so a tag matches one send with one receive
                side[int(found[4])] = (rank, int(found[3]), int(found[2]))
            else:
                assert re.fullmatch(r"calc 0 cpu \d+", task)
                tasks[label] = (rank, int(label[1:]))
                result.local.add(tasks[label])
            result.waits[tasks[label]] = set()
    return int(count[1]), result


@pytest.mark.parametrize(("name", "operation"), SERVED)
def test_every_schedule_keeps_its_messages_and_waits(
    name: str, operation: str, tmp_path: Path
) -> None:
    collective = Collective(operation, 4 * 997)
    schedule = algorithm(name).schedule(collective, 6, 2)
    Goal().write(Trace(collective=collective, schedule=schedule), tmp_path / "a.goal")
    ranks, found = played((tmp_path / "a.goal").read_text("utf-8"))
    assert ranks == schedule.vertices
    check(found, schedule)


def sum_at_the_switch(program: Program) -> None:
    for rank in (0, 1):
        program.reduce(rank, 0, 2, program.scratch, channel=rank)
    for rank in (0, 1):
        program.copy(2, program.scratch, rank, 0, channel=1)


def test_a_switch_is_a_rank_more() -> None:
    collective = Collective("all_reduce", 1024)
    schedule = from_function(collective, 2, sum_at_the_switch, channels=2, scratch=1, switches=1)
    assert "\n".join(lines(schedule)).splitlines() == [
        "num_ranks 3",
        "",
        "rank 0 {",
        "l0: send 1024b to 2 tag 0 cpu 0",
        "l2: recv 1024b from 2 tag 2 cpu 1",
        "l2 requires l0",
        "}",
        "",
        "rank 1 {",
        "l1: send 1024b to 2 tag 1 cpu 1",
        "l3: recv 1024b from 2 tag 3 cpu 1",
        "l3 requires l1",
        "}",
        "",
        "rank 2 {",
        "l0: recv 1024b from 0 tag 0 cpu 0",
        "l1: recv 1024b from 1 tag 1 cpu 1",
        "l2: send 1024b to 0 tag 2 cpu 1",
        "l2 requires l0",
        "l2 requires l1",
        "l3: send 1024b to 1 tag 3 cpu 1",
        "l3 requires l0",
        "l3 requires l1",
        "}",
    ]


def test_a_wait_for_strangers_cannot_be_written(tmp_path: Path) -> None:
    def strangers(program: Program) -> None:
        program.copy(0, 0, 1)
        program.copy(2, 0, 3, after=[0])

    collective = Collective("all_reduce", 8)
    schedule = from_function(collective, 4, strangers)
    with pytest.raises(ScheduleError, match=r"op 1 \(.*waits for op 0 \(.*neither of its ends"):
        Goal().write(Trace(collective=collective, schedule=schedule), tmp_path / "a.goal")
