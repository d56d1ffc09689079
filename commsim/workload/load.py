"""From a preset's name, a file or a dict to a Model: the one door for models."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from commsim.errors import ModelError, UnknownNameError
from commsim.workload.configs.convolutional import KINDS, read_parts
from commsim.workload.configs.hugging_face import read_config
from commsim.workload.model import Model

_FOLDER = Path(__file__).parent / "models"
_MAX_EXTENDS = 4


def load_model(source: str | os.PathLike[str] | Mapping[str, Any], **overrides: Any) -> Model:
    """The model that a preset, a config.json, a .toml of the same keys, or a dict describes.

    Overrides are keys of a Hugging Face config.json: `load_model("llama3-405b",
    num_hidden_layers=30)`, or `lora={"rank": 16, "targets": ["q_proj", "v_proj"]}`. Presets are
    found by any spelling ("Llama-3-70B"); a file or dict may name one that it `extends`. Raises
    ModelError with one line for each problem, UnknownNameError for a preset that does not exist.

    >>> load_model("llama3-8b").parameters
    8030261248
    """
    if isinstance(source, Mapping):
        return _read(_extended({**source, **overrides}), "model", "")
    if not isinstance(source, str | os.PathLike):
        raise ModelError([f"expected a preset, a path or a dict of keys, got {source!r}"])
    name = os.fspath(source)
    if not overrides and name in _spellings().values():
        return _plain_preset(name)
    path = Path(name)
    if path.suffix in (".json", ".toml") or path.exists() or isinstance(source, os.PathLike):
        if path.is_dir():
            path = path / "config.json"
        config = _extended(_file(path))
        return _read({**config, **overrides}, str(path), "")
    preset = _preset_name(name)
    if overrides:
        return _read({**_preset(preset), **overrides}, preset, preset)
    return _plain_preset(preset)


def presets() -> tuple[str, ...]:
    """The names of all presets."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.json")))


@lru_cache(maxsize=256)
def _plain_preset(name: str) -> Model:
    return _read(_preset(name), name, name)


@lru_cache
def _spellings() -> dict[str, str]:
    return {_bare(name): name for name in presets()}


def _bare(name: str) -> str:
    """A name without what is spelled in many ways, nor its publisher (meta-llama/...)."""
    return re.sub(r"[^a-z0-9.]", "", name.rpartition("/")[2].lower())


def _preset_name(name: str) -> str:
    found = _spellings().get(_bare(name))
    if found is None:
        raise UnknownNameError("model preset", name, presets(), "commsim names models")
    return found


def _preset(name: str, depth: int = 0) -> dict[str, Any]:
    return _extended(_file(_FOLDER / f"{name}.json"), depth)


def _extended(config: dict[str, Any], depth: int = 0) -> dict[str, Any]:
    """The keys over those of the preset that they extend."""
    base = config.pop("extends", None)
    if base is None:
        return config
    if not isinstance(base, str):
        raise ModelError([f"extends: expected the name of a preset, got {base!r}"])
    if depth >= _MAX_EXTENDS:
        raise ModelError([f"extends: {base!r} is more than {_MAX_EXTENDS} presets deep"])
    return {**_preset(_preset_name(base), depth + 1), **config}


def _file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8")
        config = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except FileNotFoundError:
        raise ModelError(
            [f"{path}: no such file; expected a config.json, a .toml or the name of a preset"]
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError([f"{path}: cannot be read as text: {error}"]) from None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, RecursionError) as error:
        kind = "TOML" if path.suffix == ".toml" else "JSON"
        raise ModelError([f"{path}: not valid {kind}: {error}"]) from None
    if not isinstance(config, dict):
        raise ModelError([f"{path}: expected a table of keys, got {type(config).__name__}"])
    return config


def _read(config: Mapping[str, Any], where: str, name: str) -> Model:
    kind = config.get("model_type")
    if kind is not None and not isinstance(kind, str):
        raise ModelError([f'{where}: model_type: expected a text such as "llama", got {kind!r}'])
    if kind in KINDS:
        return read_parts(config, where, name)
    return read_config(config, where, name)
