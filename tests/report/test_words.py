from __future__ import annotations

import pytest

from commsim.report.words import words


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("duration_s", 0.00125, "1.25 ms"),
        ("size_bytes", 1 << 30, "1 GiB"),
        ("memory/headroom_bytes", -(1 << 30), "-1 GiB"),
        ("bus_bandwidth_bytes_per_s", 450e9, "450 GB/s"),
        ("breakdown_s/launch", 5e-6, "5 us"),  # the unit is the group's
        ("breakdown_s/memory traffic", -2e-3, "-2 ms"),
        ("interval_s/0", 2.0, "2 s"),
        ("mfu", 0.412, "41.2 %"),
        ("tokens_per_s_per_gpu", 12345.6, "12,346"),
        ("n_ranks", 16384, "16,384"),
        ("fits", True, "yes"),
        ("price", None, "-"),
        ("ranks", [0, 8], "0; 8"),
    ],
)
def test_a_number_is_written_with_the_unit_in_its_key(path: str, value: object, text: str) -> None:
    assert words(path, value) == text
