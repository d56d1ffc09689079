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
