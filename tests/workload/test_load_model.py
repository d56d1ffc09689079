"""Presets, files and dicts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import commsim
from commsim.errors import ModelError, UnknownNameError
from commsim.workload import load

FOLDER = Path(load.__file__).parent / "models"
TINY = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 128, "vocab_size": 100,
}  # fmt: skip


@pytest.mark.parametrize("name", load.presets())
def test_presets_name_their_source(name: str) -> None:
    keys = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    assert len(keys["source"]) > 15
    assert commsim.load_model(name).name == name


def test_presets_by_any_spelling() -> None:
    model = commsim.load_model("llama3-8b")
    for name in ("Llama-3-8B", "llama_3_8b", "LLAMA3-8B"):
        assert commsim.load_model(name) is model
    assert commsim.load_model("mistralai/Mixtral-8x7B").name == "mixtral-8x7b"
    assert commsim.load_model("llama3.1-8b").max_positions == 131072
    assert model.max_positions == 8192


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'llama3-70b'"):
        commsim.load_model("llama3-70")


def test_the_same_from_dict_json_toml_and_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    toml = tmp_path / "tiny.toml"
    toml.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in TINY.items()))
    model = commsim.load_model(TINY)
    assert model.n_layers == 2
    for source in (tmp_path / "config.json", str(tmp_path / "config.json"), toml, str(tmp_path)):
        assert commsim.load_model(source) == model


def test_overrides_are_keys() -> None:
    whole = commsim.load_model("llama3-405b")
    part = commsim.load_model("llama3-405b", num_hidden_layers=7)
    layer = whole.stacks[0][0].parameters(16384, "rms")
    assert whole.parameters - part.parameters == (126 - 7) * layer


def test_a_file_may_extend_a_preset(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('extends = "llama3-8b"\nvocab_size = 128512\n')
    more = commsim.load_model(path).parameters - commsim.load_model("llama3-8b").parameters
    assert more == 2 * 256 * 4096
    with pytest.raises(UnknownNameError, match="llama9"):
        commsim.load_model({"extends": "llama9"})
    with pytest.raises(ModelError, match="extends: expected the name of a preset, got 3"):
        commsim.load_model({"extends": 3})


def test_the_dict_of_the_caller_stays_as_it_is() -> None:
    keys = {"extends": "gpt2", "n_layer": 6}
    assert commsim.load_model(keys) == commsim.load_model(keys)
    assert keys == {"extends": "gpt2", "n_layer": 6}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{", "not valid JSON"),
        ("a.toml", "x = ", "not valid TOML"),
        ("a.json", "[1]", "expected a table of keys, got list"),
        ("a.json", "{}", "hidden_size: missing"),
        ("a.json", b"\xff\xfe", "cannot be read as text"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, name: str, text: str | bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ModelError, match=message) as caught:
        commsim.load_model(path)
    assert name in str(caught.value)


def test_no_file_and_no_source() -> None:
    with pytest.raises(ModelError, match=r"nowhere\.json: no such file"):
        commsim.load_model("nowhere.json")
    with pytest.raises(ModelError, match="expected a preset, a path or a dict of keys, got 7"):
        commsim.load_model(7)  # type: ignore[arg-type]


def test_a_model_type_that_is_no_text() -> None:
    with pytest.raises(ModelError, match=r"model_type: expected a text .*, got \['llama'\]"):
        commsim.load_model({**TINY, "model_type": ["llama"]})
