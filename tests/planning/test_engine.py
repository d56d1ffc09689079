"""Every engine gives the same, to the bit; what is in the file is never worked out again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import commsim
from commsim.errors import PlanError
from commsim.planning import survey as work
from commsim.planning.engine import Engine
from commsim.planning.search import search
from commsim.planning.space import Space
from commsim.planning.store import Store
from commsim.planning.survey import Question, Surveyed
from commsim.workload.layout import Layout
from commsim.workload.trust import shipped


@pytest.fixture
def space(model: commsim.Model, cluster: commsim.Cluster) -> Space:
    return Space(
        model=model, cluster=cluster, global_batch=16, seq_len=1024,
        only={"tp": (1, 2), "cp": (1,), "recompute": ("none",), "interleave": (1,)},
    )  # fmt: skip


def test_processes_give_the_same_as_this_one(space: Space) -> None:
    pytest.importorskip("joblib")
    here = search(space, shipped(), Engine(where="serial"))
    there = search(space, shipped(), Engine(where="local", jobs=2))
    assert there == here


def test_what_is_in_the_file_is_never_worked_out_again(
    space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "results.sqlite")
    first = search(space, shipped(), Engine(where="serial", store=store))

    def never(*_: object, **__: object) -> None:
        raise AssertionError("worked out again")

    monkeypatch.setattr(work, "memory", never)
    monkeypatch.setattr(work, "step_with", never)
    assert search(space, shipped(), Engine(where="serial", store=store)) == first
    with pytest.raises(AssertionError, match="again"):
        search(space, shipped(), Engine(where="serial"))


def test_another_question_is_not_answered_from_the_file(space: Space, tmp_path: Path) -> None:
    store = Store(tmp_path / "results.sqlite")
    question = Question.of(space, shipped())
    task = [(Layout(dp=16, global_batch=16, seq_len=1024),)]
    store.keep("survey", question.digest, task, [[Surveyed("", 1.0, 2.0)]])
    assert store.known("survey", question.digest, [task]) == {0: [[["", 1.0, 2.0]]]}
    assert store.known("time", question.digest, [task]) == {}
    assert store.known("survey", question.digest + "x", [task]) == {}
    assert store.known("survey", question.digest, [[]]) == {}


def test_equal_questions_have_equal_digests(space: Space, model: commsim.Model) -> None:
    again = Space(
        model=model, cluster=commsim.load_cluster("dgx-h100", nodes=2), global_batch=16,
        seq_len=1024, only=space.only,
    )  # fmt: skip
    other = Space(
        model=model, cluster=commsim.load_cluster("dgx-h100", nodes=4), global_batch=16,
        seq_len=1024, only=space.only,
    )  # fmt: skip
    asked = [Question.of(one, shipped()).digest for one in (space, again, other)]
    assert asked[0] == asked[1] != asked[2]


def test_floats_survive_the_file(tmp_path: Path) -> None:
    store = Store(tmp_path / "results.sqlite")
    value = 0.1 + 0.2
    store.keep("time", "d", "t", [[3, value]])
    assert store.known("time", "d", ["t"])[0][0][1].hex() == value.hex()


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no database\n" * 100)
    with pytest.raises(PlanError, match=r"notes\.txt: expected an SQLite file"):
        Store(path).known("time", "d", [])


@pytest.mark.parametrize("where", ["slurm", "dask://", "http://host:1", ""])
def test_an_engine_that_does_not_exist_is_refused(where: str) -> None:
    with pytest.raises(PlanError, match="engine: expected"):
        Engine(where=where)


def test_no_processes_are_refused() -> None:
    with pytest.raises(PlanError, match="jobs: expected 1 or more, got 0"):
        Engine(jobs=0)


SEARCH = """
import sys, commsim
from commsim.planning.engine import Engine
from commsim.planning.plans import plan
from commsim.planning.store import Store
from pathlib import Path
plans = plan(
    commsim.load_model("llama3-8b"), commsim.load_cluster("dgx-h100", nodes=2),
    global_batch=32, seq_len=4096, top=3,
    only={"cp": (1,), "recompute": ("none",), "interleave": (1,)},
    engine=Engine(where="serial", store=Store(Path(sys.argv[1]))),
)
print([(p.duration.hex(), p.layout) for p in plans])
"""


def run(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SEARCH, str(path)], stdout=subprocess.PIPE, text=True
    )


def test_a_search_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    cut = run(path)
    while cut.poll() is None and rows(path) < 3:
        time.sleep(0.01)
    os.kill(cut.pid, signal.SIGKILL)
    cut.communicate()
    kept = contents(path)
    assert kept
    resumed, _ = run(path).communicate()
    whole, _ = run(tmp_path / "whole.sqlite").communicate()
    assert resumed == whole
    assert whole.startswith("[('0x")
    assert kept.items() <= contents(path).items()
    assert contents(path) == contents(tmp_path / "whole.sqlite")


def contents(path: Path) -> dict[str, str]:
    import sqlite3
    from contextlib import closing

    if not path.exists():
        return {}
    with closing(sqlite3.connect(path, timeout=60)) as there:
        try:
            return dict(there.execute("SELECT key, value FROM results").fetchall())
        except sqlite3.OperationalError:
            return {}


def rows(path: Path) -> int:
    return len(contents(path))


def test_a_worker_that_dies_is_replaced(space: Space, tmp_path: Path) -> None:
    pytest.importorskip("joblib")
    marker = tmp_path / "died"
    question = Question(b"", "")
    engine = Engine(where="local", jobs=2)
    assert engine.run(fragile, question, [str(marker)] * 6, None) == [1] * 6
    assert marker.exists()


def fragile(question: Question, task: str) -> int:
    """Ends the first process that works on it, as the kernel ends one that takes all memory."""
    try:
        os.close(os.open(task, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return 1
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def test_a_task_that_fails_is_not_run_again(tmp_path: Path) -> None:
    ran: list[str] = []

    def fails(question: Question, task: str) -> int:
        ran.append(task)
        raise ZeroDivisionError(task)

    with pytest.raises(ZeroDivisionError):
        Engine(where="serial").run(fails, Question(b"", ""), ["a", "b"], None)
    assert ran == ["a"]
