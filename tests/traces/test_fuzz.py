"""Damaged files: a reader gives recordings that can be played, or an error that names the file."""

from __future__ import annotations

import json
import pickle
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commsim.errors import CommsimError, SpecError
from commsim.traces.joining import join
from commsim.traces.lookup import recorder, recorders
from commsim.traces.reading import read_recordings
from commsim.traces.replay import replay

from . import kineto_files
from .test_execution_trace import gloo
from .test_flight_recorder import dump, entry
from .test_nsys import export

LENIENT = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A small file of each format."""
    folder = tmp_path_factory.mktemp("samples")
    chakra = {"globalMetadata": {"version": "0.0.4"}, "nodes": [
        {"id": "1", "name": "a", "type": "COMP_NODE", "durationMicros": "7"},
        {"id": "2", "name": "b", "type": "COMM_COLL_NODE", "dataDeps": ["1"],
         "attr": [{"name": "comm_type", "int64Val": "0"}, {"name": "comm_size", "int64Val": "64"}]},
    ]}  # fmt: skip
    return {
        "kineto": json.dumps(kineto_files.trace(kineto_files.step())).encode(),
        "execution_trace": json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": gloo()}).encode(),
        "flight_recorder": pickle.dumps(dump([entry(1, "nccl:all_reduce", 0)])),
        "chakra": json.dumps(chakra).encode(),
        "nsys": export(folder / "r.sqlite").read_bytes(),
    }


def survives(path: Path, name: str | None = None) -> None:
    """Read and played, or refused in words."""
    said = ""
    try:
        step = join(read_recordings([path], name))
        assert replay(step).duration >= 0
    except CommsimError as error:
        said = str(error)
        if not said:
            raise
    assert "Traceback" not in said


def test_there_is_a_sample_of_every_format(samples: dict[str, bytes]) -> None:
    assert set(samples) == set(recorders())


@pytest.mark.parametrize("name", recorders())
def test_the_sample_itself_is_read(tmp_path: Path, samples: dict[str, bytes], name: str) -> None:
    path = tmp_path / "rank_0"
    path.write_bytes(samples[name])
    assert replay(join(read_recordings([path]))).duration >= 0


@pytest.mark.parametrize("name", recorders())
@LENIENT
@given(data=st.data())
def test_damaged_files(
    tmp_path: Path, samples: dict[str, bytes], name: str, data: st.DataObject
) -> None:
    """Cut off, shuffled in blocks, bytes changed."""
    whole = bytearray(samples[name])
    draw = random.Random(data.draw(st.integers(0, 1 << 32)))
    how = data.draw(st.sampled_from(["cut", "shuffle", "bytes", "drop"]))
    if how == "cut":
        whole = whole[: draw.randrange(len(whole))]
    elif how == "shuffle":
        size = draw.choice([7, 64, 512])
        blocks = [whole[i : i + size] for i in range(0, len(whole), size)]
        draw.shuffle(blocks)
        whole = bytearray(b"".join(blocks))
    elif how == "bytes":
        for _ in range(draw.randrange(1, 20)):
            whole[draw.randrange(len(whole))] = draw.randrange(256)
    else:
        at = draw.randrange(len(whole))
        del whole[at : at + draw.randrange(1, 200)]
    path = tmp_path / "rank_0"
    path.write_bytes(bytes(whole))
    survives(path)
    survives(path, name)


@LENIENT
@given(content=st.binary(max_size=300), name=st.sampled_from(recorders()))
def test_any_bytes(tmp_path: Path, content: bytes, name: str) -> None:
    path = tmp_path / "rank_0"
    path.write_bytes(content)
    survives(path)
    with pytest.raises(SpecError, match="rank_0"):
        recorder(name).recordings(path)


WORDS = st.text(max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@LENIENT
@given(data=st.data())
def test_values_of_any_type(tmp_path: Path, samples: dict[str, bytes], data: st.DataObject) -> None:
    """JSON that is whole, some of its values anything."""
    name = data.draw(st.sampled_from(["kineto", "execution_trace", "chakra"]))
    document = json.loads(samples[name])
    for _ in range(data.draw(st.integers(1, 4))):
        at = document
        while True:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            inner = at[key]
            if not isinstance(inner, (dict, list)) or not inner or data.draw(st.booleans()):
                at[key] = data.draw(JSON)
                break
            at = inner
    path = tmp_path / "rank_0"
    path.write_text(json.dumps(document))
    survives(path, name)


@LENIENT
@given(value=JSON, place=st.sampled_from(["entries", "entry", "field"]), field=st.integers(0, 30))
def test_pickled_values_of_any_type(tmp_path: Path, value: object, place: str, field: int) -> None:
    one = entry(1, "nccl:all_reduce", 0)
    one[sorted(one)[field % len(one)]] = value if place == "field" else one[sorted(one)[0]]
    whole = dump([one])
    if place == "entries":
        whole["entries"] = value  # type: ignore[assignment]
    elif place == "entry":
        whole["entries"] = [value]  # type: ignore[list-item]
    path = tmp_path / "rank_0"
    path.write_bytes(pickle.dumps(whole))
    survives(path, "flight_recorder")


def test_deeply_nested_json_does_not_crash(tmp_path: Path) -> None:
    path = tmp_path / "rank_0"
    path.write_text('{"traceEvents": [' + "[" * 200_000)
    with pytest.raises(SpecError, match="rank_0"):
        read_recordings([path])
