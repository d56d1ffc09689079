from __future__ import annotations

import pytest

from commsim.errors import UnknownNameError

PARTS = ("A10", "A100-SXM4-80GB", "GB200-NVL72", "H100-SXM5-80GB", "RTX-5090")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("H101", "H100-SXM5-80GB"),  # not the short A10: three letters of four begin H100
        ("a100-sxm4-80", "A100-SXM4-80GB"),
        ("rtx5090", "RTX-5090"),
        ("nvl72", "GB200-NVL72"),
        ("xyz", None),
    ],
)
def test_the_nearest_name(name: str, nearest: str | None) -> None:
    error = UnknownNameError("GPU", name, PARTS)
    assert error.nearest == nearest
    assert ("did you mean" in str(error)) == (nearest is not None)
    assert all(part in str(error) for part in PARTS)


def test_of_many_names_the_nearest_are_listed_and_where_all_are() -> None:
    many = [f"node{i}/gpu{k}" for i in range(40) for k in range(8)]
    text = str(UnknownNameError("device", "node3/gpu9", many, "commsim names devices"))
    assert text.startswith("unknown device 'node3/gpu9'; did you mean 'node3/gpu")
    assert "nearest of 320: node3/gpu" in text
    assert text.endswith("; all: commsim names devices)")
    assert text.count("/gpu") == 1 + 1 + 3
    assert len(text) < 200


def test_what_holds_the_name_is_near() -> None:
    known = ["b200", "dgx-h100", "h100-pcie-bridges", *(f"other{i}" for i in range(20))]
    text = str(UnknownNameError("preset", "h100", known))
    assert "did you mean 'dgx-h100'" in text
    assert "nearest of 23: dgx-h100, h100-pcie-bridges, " in text
    assert "all: " not in text
