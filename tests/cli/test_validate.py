from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from commsim.cli.validate import read_share
from commsim.collectives.collective import Collective
from commsim.errors import UnitError
from commsim.prediction import predict
from commsim.topology.load import load_cluster

from .conftest import Ran

Command = Callable[[str], Ran]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three sizes of two operations, 1.25, 1 and 0.8 times what is predicted: errors of 1 - 1/1.25
    = 20 %, 0 % and 1/0.8 - 1 = 25 %."""
    path = tmp_path_factory.mktemp("logs") / "off.jsonl"
    machine = load_cluster("dgx-h100")
    lines = []
    for operation in ("all_reduce", "all_gather"):
        for nbytes, factor in ((1 << 10, 1.25), (1 << 20, 1.0), (1 << 30, 0.8)):
            seconds = predict(Collective(operation, nbytes=nbytes), machine).duration * factor
            row = {"operation": operation, "size": nbytes, "n_ranks": 8, "dtype": "float32"}
            lines.append(json.dumps(row | {"duration_s": seconds}))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_errors_by_regime_operation_and_nodes(commsim: Command, log: Path) -> None:
    found = commsim(f"validate {log} -c dgx-h100 --json").json
    rows = {(row["kind"], row["group"]): row for row in found["agreement"]}
    whole = rows["all", "all"]
    assert whole["points"] == 6
    assert whole["median"] == pytest.approx(0.2)
    assert whole["mean"] == pytest.approx((0.2 + 0 + 0.25) / 3)
    assert whole["bias"] == pytest.approx(1.0)  # 1 / 1.25 and 1 / 0.8
    assert rows["regime", "latency"]["bias"] == pytest.approx(0.8)
    assert rows["nodes/regime", "one node/bandwidth"]["median"] == pytest.approx(0.25)
    assert rows["operation", "all_gather"]["points"] == 3
    assert rows["nodes", "1"]["points"] == rows["ranks", "8"]["points"] == 6
    assert len(found["points"]) == 6
    first = found["points"][0]
    assert first["measured_s"] == pytest.approx(1.25 * first["predicted_s"])
    assert first["where"] == f"{log}:1"
    assert found["within_tolerance"] is None


def test_the_table_and_the_worst(commsim: Command, log: Path) -> None:
    ran = commsim(f"validate {log} -c dgx-h100")
    assert (ran.code, ran.err) == (0, "")
    assert "predicted against measured" in ran.out
    worst = ran.lines[next(i for i, x in enumerate(ran.lines) if x == "largest errors") + 3]
    assert "1 GiB" in worst
    assert worst.endswith("+25%")


def test_exit_code_one_above_the_tolerance(commsim: Command, log: Path) -> None:
    assert commsim(f"validate {log} -c dgx-h100 --tolerance 21%").code == 0
    ran = commsim(f"validate {log} -c dgx-h100 --tolerance 19%")
    assert ran.code == 1
    assert ran.lines[-1] == "the median error, 20.0%, is above --tolerance 0.19"
    assert commsim(f"validate {log} -c dgx-h100 --tolerance 19% --json").json[
        "within_tolerance"
    ] is False  # fmt: skip


def test_bad_input(commsim: Command, log: Path, tmp_path: Path) -> None:
    for line, expected in (
        (f"validate {log}", "pass --cluster"),
        (f"validate {log} -c dgx-h100 --tolerance 0.1", "expected a share such as 10%"),
        (f"validate {log} -c dgx-h100 --plot x.gif", "ending in .html, .png or .svg"),
        (f"validate {log} -c dgx-h100 --profile {tmp_path / 'no.toml'}", "cannot be read"),
        (f"validate {tmp_path / 'no.log'} -c dgx-h100", "expected a file that can be read"),
    ):
        ran = commsim(line)
        assert ran.code == 2, line
        assert expected in ran.err, line


def test_a_picture(commsim: Command, log: Path, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    for option, name, begins in (
        ("--plot", "x.png", b"\x89PNG"), ("--plot", "x.svg", b"<svg"),
        ("--report", "x.html", b"<!doctype html>"),
    ):  # fmt: skip
        assert commsim(f"validate {log} -c dgx-h100 {option} {tmp_path / name}").code == 0
        assert (tmp_path / name).read_bytes().startswith(begins)
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert page.count("<figure") == 2
    assert "off.jsonl:3" in page  # the largest error


def test_shares() -> None:
    assert read_share("--tolerance", "10%") == pytest.approx(0.1)
    assert read_share("--tolerance", " 2.5 % ") == pytest.approx(0.025)
    with pytest.raises(UnitError, match="such as 10%"):
        read_share("--tolerance", "10")
