from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from commsim.collectives.collective import Collective
from commsim.cost.profile import Profile
from commsim.prediction import predict
from commsim.topology.load import load_cluster

from .conftest import Ran

Command = Callable[[str], Ran]
SLOWER = 1.25  # than predicted, what the made-up machine is


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """JSON lines of a machine that is 1.25 times slower than predicted."""
    path = tmp_path_factory.mktemp("logs") / "slow.jsonl"
    machine = load_cluster("dgx-h100")
    lines = []
    for step in range(8):
        nbytes = 8 * 16**step
        seconds = predict(Collective("all_reduce", nbytes=nbytes), machine).duration * SLOWER
        row = {"operation": "all_reduce", "size": nbytes, "n_ranks": 8, "dtype": "float32"}
        lines.append(json.dumps(row | {"duration_s": seconds}))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_a_profile_is_saved_and_taken_by_other_commands(
    commsim: Command, log: Path, tmp_path: Path
) -> None:
    output = tmp_path / "ours.toml"
    ran = commsim(f"calibrate {log} --cluster dgx-h100 --output {output}")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines[0] == "profile ours: 8 points of 8 measurements"
    for words in ("held out", "calibrated on", "constants learnt", "not determined"):
        assert words in ran.out
    assert Profile.load(output).name == "ours"
    line = "predict dgx-h100 all_reduce --size 128MiB --json"
    before, after = commsim(line).json, commsim(f"{line} --profile {output}").json
    assert after["duration_s"] == pytest.approx(SLOWER * before["duration_s"], rel=0.05)
    line = f"--profile {output} dgx-h100 all_reduce"
    for other in ("sweep -b 8 -e 1M -f 4", "explain --size 1MiB", "simulate --size 64KiB"):
        name, _, rest = other.partition(" ")
        assert commsim(f"{name} {line} {rest}").code == 0
    assert commsim(f"compare dgx-h100 {line} --size 1MiB").code == 0


def test_a_file_is_replaced_only_when_asked(commsim: Command, log: Path, tmp_path: Path) -> None:
    output = tmp_path / "ours.toml"
    output.write_text("precious", encoding="utf-8")
    line = f"calibrate {log} --cluster dgx-h100 --output {output}"
    ran = commsim(line)
    assert ran.code == 2
    assert ran.err == (
        f"commsim: {output}: is there already; name another file, or add --overwrite\n"
    )
    assert output.read_text(encoding="utf-8") == "precious"
    assert commsim(f"{line} --overwrite").code == 0
    assert Profile.load(output).report is not None


def test_json(commsim: Command, log: Path) -> None:
    found = commsim(f"calibrate {log} --cluster dgx-h100 --json").json
    assert found["output"] is None
    assert found["files"] == [str(log)]
    assert found["covered"][0]["sizes_bytes"] == [8, 8 * 16**7]
    assert found["report"]["points"] == 8
    rows = {(row["left_out"], row["group"]) for row in found["report"]["held_out"]}
    assert ("size", "all_reduce") in rows


def test_without_a_cluster_it_says_what_to_pass(commsim: Command, log: Path) -> None:
    ran = commsim(f"calibrate {log}")
    assert ran.code == 2
    (line,) = ran.err.splitlines()
    assert line.startswith(f"commsim: {log}:1: ")
    assert "pass --cluster" in line


def test_an_unreadable_base(commsim: Command, log: Path, tmp_path: Path) -> None:
    ran = commsim(f"calibrate {log} --cluster dgx-h100 --base {tmp_path / 'none.toml'}")
    assert ran.code == 2
    assert "cannot be read" in ran.err
