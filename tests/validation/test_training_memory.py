"""The report of memory errors, on three runs made up for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import commsim
from commsim.workload.layout import Layout
from commsim.workload.load import load_model
from commsim.workload.memory import memory
from validation.training_memory import error, left_out, main, read

MODEL = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 128256,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
}  # fmt: skip
CLUSTER = {
    "name": "one",
    "nodes": 1,
    "node": {"gpu": "H100-SXM5-80GB", "gpus": 8, "interconnect": "nvswitch"},
}


def case(peak: float | None, unit: str, micro_batch: int = 1) -> dict[str, object]:
    layout = {
        "dp": 8, "micro_batch": micro_batch, "global_batch": 8 * micro_batch, "seq_len": 8192,
        "zero_stage": 3, "recompute": "selective", "framework": "torchtitan",
    }  # fmt: skip
    truth = {"peak_mem_gb": peak, "mem_unit": unit, "oom": peak is None}
    return {
        "source": "A" if micro_batch == 1 else "B", "model": MODEL, "cluster": CLUSTER,
        "layout": layout, "truth": truth, "score": peak is not None, "memory": True,
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    layout = Layout(**case(1.0, "GB")["layout"])  # type: ignore[arg-type]
    peak = memory(load_model(MODEL), commsim.load_cluster(CLUSTER), layout).peak
    cases = {
        "a": case(peak / 1e9, "GB"),
        "b": case(2 * peak / 2**30, "unknown"),
        "c": case(None, "unknown", micro_batch=64),
    }
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    return tmp_path


def test_errors_are_signed_and_in_the_nearer_unit(folder: Path) -> None:
    a, b, _ = read(folder)
    assert error(a, memory(a.model, a.cluster, a.layout)) == pytest.approx(0, abs=1e-9)
    # half as much as printed in GiB, and nearer to what it would be in GB
    assert error(b, memory(b.model, b.cluster, b.layout)) == pytest.approx(0.5 * 2**30 / 1e9 - 1)


def test_a_source_left_out_is_judged_by_the_others(folder: Path) -> None:
    cases = [c for c in read(folder) if not c.oom]
    other = [
        c.__class__(**{f: getattr(c, f) for f in c.__slots__} | {"source": "C"}) for c in cases
    ]
    assert len(left_out("A", [*cases, *other])) == 2


def test_the_report(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["training_memory", "--data", str(folder), "--rows"])
    monkeypatch.setattr("validation.training_memory.left_out", lambda source, cases: [0.0] * 2)
    monkeypatch.setattr(
        "validation.training_memory._line", lambda name, found: f"{name} {len(found)}"
    )
    main()
    out = capsys.readouterr().out
    assert "all 2" in out
    assert "without A 2" in out
    assert "out of memory, predicted to fit: 0 of 1" in out
    assert "ran, predicted not to fit: 0 of 2" in out
