"""Profiles: written, read back, refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from commsim.collectives.collective import Collective
from commsim.cost.profile import Constant, Profile, Spread, shipped, to_toml
from commsim.errors import ProfileError
from commsim.prediction import predict
from commsim.topology.load import load_cluster

PROFILE = Profile(
    name='odd "name"\n',
    source="back\\slash, tab\t and del \x7f",
    constants={
        "hop": Constant(value=1.5e-6, unit="s", meaning="one hop", birthplace="a run"),
        "link": Constant(
            value=2.0, unit="", meaning="share", birthplace="a sheet", error=0.25,
            limits=(0.5, 3.0), by={"generation": {"hopper": 1.25, "ada": 0.1, "a b": 2.0}},
        ),
    },
    spreads={"all": Spread(low=-0.1, high=0.3, points=7)},
    fitted={"generation": ("hopper", "ada"), "odd kind": ("x",), "max_nodes": ("4",)},
)  # fmt: skip


def test_written_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    PROFILE.save(path)
    back = Profile.load(path)
    assert (back.name, back.source) == (PROFILE.name, PROFILE.source)
    assert dict(back.constants) == dict(PROFILE.constants)
    assert dict(back.spreads) == dict(PROFILE.spreads)
    assert dict(back.fitted) == dict(PROFILE.fitted)
    assert to_toml(back) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["nccl", "gloo", "mpi"])
def test_shipped_profiles_come_through_a_file_unchanged(name: str, tmp_path: Path) -> None:
    one = shipped(name)
    one.save(tmp_path / "p.toml")
    back = Profile.load(tmp_path / "p.toml")
    for key, constant in one.constants.items():
        assert back.constants[key] == constant or math.isnan(constant.error)
        assert back.constants[key].value == constant.value
    assert dict(back.spreads) == dict(one.spreads)
    assert dict(back.fitted) == dict(one.fitted)


@pytest.mark.parametrize("name", ["nccl", "gloo", "mpi"])
def test_every_constant_has_a_meaning_and_a_birthplace(name: str) -> None:
    for key, constant in shipped(name).constants.items():
        assert constant.meaning, key
        assert constant.birthplace, key
        assert math.isfinite(constant.value), key


def test_factors_multiply_and_limits_hold() -> None:
    # 2.0 x 1.25 = 2.5; x 0.1 = 0.2 lies below the limit 0.5; an unknown tag has factor 1.
    for tag, expected in (("hopper", 2.5), ("ada", 0.5), ("volta", 2.0)):
        values = PROFILE.values((("generation", tag), ("vendor", "nvidia")))
        assert values["link"] == expected
        assert values["hop"] == 1.5e-6


def test_a_profile_of_another_library_is_refused() -> None:
    with pytest.raises(ProfileError, match=r"is missing; use a profile made for this library"):
        predict(Collective("all_reduce", nbytes=8), load_cluster("dgx-h100"), profile=PROFILE)


GOOD = to_toml(PROFILE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("= nonsense", "not a TOML profile"),
        ("\0", "not a TOML profile"),
        ("a = " + "[" * 5000, "not a TOML profile"),
        ("", "format: expected 1 or 2 or 3, got None"),
        (GOOD.replace("format = 3", "format = 4"), "format: expected 1 or 2 or 3, got 4"),
        ("format = 2", "name: expected text, got None"),
        ('format = 2\nname = "x"\nsource = 3', "source: expected text, got 3"),
        ('format = 2\nname = "x"\nsource = ""\nconstants = 3', "constants: expected a table"),
        (GOOD.replace("value = 1.5e-06", 'value = "1.5us"'), "constants.hop.value: expected a num"),
        (GOOD.replace("value = 1.5e-06", "value = nan"), "constants.hop.value: expected a number"),
        (GOOD.replace("value = 1.5e-06", "value = inf"), "constants.hop: expected a finite value"),
        (GOOD.replace("value = 1.5e-06", ""), "constants.hop.value: expected a number, got None"),
        (GOOD.replace("value = 1.5e-06", "value = 1e-6\nx = 1"), "constants.hop.x: unknown key"),
        (GOOD.replace("limits = [0.5, 3]", "limits = [3]"), "constants.link.limits: expected"),
        (GOOD.replace("limits = [0.5, 3]", "limits = [3, 0.5]"), "low <= high"),
        (GOOD.replace('"ada" = 0.1', '"ada" = "x"'), "constants.link.by.generation.ada"),
        (GOOD.replace("low = -0.1", "low = 0.8"), "spreads.all: expected low <= 0 <= high"),
        (GOOD.replace('max_nodes = ["4"]', "max_nodes = 4"), "fitted.max_nodes: expected a list"),
    ],
)
def test_bad_files_are_one_line_each(text: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ProfileError) as found:
        Profile.load(path)
    (line,) = str(found.value).splitlines()
    assert line.startswith(f"{path}: ")
    assert expected in line


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"cannot be read .* name a profile file"):
        Profile.load(tmp_path / "none.toml")
    with pytest.raises(ProfileError, match="cannot be read"):
        Profile.load(tmp_path)
    with pytest.raises(ProfileError, match="cannot be written"):
        PROFILE.save(tmp_path / "no folder" / "p.toml")
