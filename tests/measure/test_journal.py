"""A file is never torn: not by a full disk, not by a crash within a line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import commsim
from commsim.errors import BrokenRunError, MeasureError, SpecError
from commsim.measure.journal import Journal

RUN = {"kind": "run", "run": "a", "library": "gloo", "library_version": "2.13.0",
       "command": ["commsim", "measure"], "versions": {"torch": "2.13.0"},
       "ranks": [{"device": "CPU", "host": "vm"}] * 4}  # fmt: skip
RECORD = {"kind": "collective", "run": "a", "operation": "broadcast", "size_bytes": 64,
          "dtype": "float32", "reduce_op": "sum", "root": 2, "ranks": [0, 2], "n_ranks": 2,
          "nodes": 1, "in_place": True, "wrong": 0, "timing": "isolated", "duration_s": 2e-6,
          "samples_s": [1e-6, 2e-6, 3e-6]}  # fmt: skip


def write(path: Path, *records: dict[str, object], append: bool = False) -> Journal:
    with Journal(path, append=append) as journal:
        for record in records:
            journal.write(record)
    return journal


def test_what_is_written_is_read_with_where_it_comes_from(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    write(path, RUN, RECORD, RECORD | {"ranks": [0, 1, 2], "n_ranks": 3, "in_place": False})
    one, other = commsim.read_measurements(path)
    assert one.collective == commsim.Collective("broadcast", 64, ranks=(0, 2), root=2)
    assert (one.duration, one.in_place, one.wrong, one.nodes) == (2e-6, True, 0, 1)
    assert one.samples == (1e-6, 2e-6, 3e-6)
    assert (other.n_ranks, other.in_place, other.collective.ranks) == (3, False, None)
    told = dict(one.provenance)
    assert (told["library"], told["library_version"]) == ("gloo", "2.13.0")
    assert (told["hosts"], told["timing"], told["command"]) == ("vm", "isolated", "commsim measure")
    assert "note" not in told


def test_other_kinds_are_no_measurements_of_a_collective(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    write(path, RUN, RECORD | {"kind": "together"}, {"kind": "gemm"}, {"kind": "interference"},
          RECORD | {"ranks": [0], "n_ranks": 1}, RECORD)  # fmt: skip
    assert len(commsim.read_measurements(path)) == 1


def test_a_torn_last_line_is_left_out_and_told(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    write(path, RUN, RECORD)
    with path.open("a") as file:
        file.write('{"commsim_measure":1,"kind":"collective","oper')
    (found,) = commsim.read_measurements(path)
    assert dict(found.provenance)["note"] == "line 3 is torn and left out"
    journal = write(path, RUN, RECORD, append=True)
    assert journal.cut == 46
    assert [json.loads(line)["kind"] for line in path.read_text().splitlines()] == [
        "run", "collective", "run", "collective",
    ]  # fmt: skip
    assert len(commsim.read_measurements(path)) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"duration_s": -1}, "2: expected a number >= 0, got '-1'"),
        ({"duration_s": 0}, "2: expected duration_s: seconds > 0, got 0"),
        ({"operation": "all_red"}, "2: expected operation: one of all_gather"),
        ({"size_bytes": 1.5}, "2: expected a whole number, got '1.5'"),
        ({"commsim_measure": 9}, "2: expected a line of format 1"),
        ({"ranks": None}, "2: expected a collective's record, got one without"),
    ],
)
def test_nonsense_in_a_file(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "m.jsonl"
    write(path, RUN)
    with path.open("a") as file:
        file.write(json.dumps({"commsim_measure": 1} | RECORD | change) + "\n")
    with pytest.raises(SpecError, match=message):
        commsim.read_measurements(path)


def test_a_line_in_the_middle_must_be_whole(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    write(path, RUN, RECORD)
    path.write_text(path.read_text().replace('"root":2', '"root":'))
    with pytest.raises(SpecError, match="2: expected JSON"):
        commsim.read_measurements(path)


def test_an_existing_file_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    write(path, RUN)
    with pytest.raises(MeasureError, match="exists already; --append adds to it, --overwrite"):
        Journal(path)
    with pytest.raises(MeasureError, match="expected one of them, got both"):
        Journal(path, overwrite=True, append=True)
    Journal(path, overwrite=True).close()
    assert path.read_text() == ""
    Journal(tmp_path / "other.jsonl").close()
    assert not (tmp_path / "other.jsonl").exists()  # nothing was measured
    with pytest.raises(MeasureError, match=r"no/m.jsonl: cannot be written: No such file"):
        Journal(tmp_path / "no" / "m.jsonl")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_is_said() -> None:
    with (
        Journal(Path("/dev/full")) as journal,
        pytest.raises(BrokenRunError, match="No space left on device; the 0 lines before are kept"),
    ):
        journal.write(RUN)


def test_a_line_that_fits_half_is_taken_back(tmp_path: Path) -> None:
    """As on a full disk: the file may grow to 1000 bytes, a line has more than 200."""
    pytest.importorskip("resource")
    path = tmp_path / "m.jsonl"
    script = f"""
import resource, sys
from pathlib import Path
from commsim.errors import BrokenRunError
from commsim.measure.journal import Journal
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
journal = Journal(Path({str(path)!r}))
try:
    for _ in range(9):
        journal.write({RECORD!r})
except BrokenRunError as error:
    print(journal.kept, error)
"""
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30
    )
    lines = path.read_text().splitlines()
    assert run.stdout.startswith(f"{len(lines)} {path}: File too large; the {len(lines)} lines")
    assert 1 <= len(lines) < 9
    assert path.read_text().endswith("\n")
    assert all(json.loads(line)["size_bytes"] == 64 for line in lines)
