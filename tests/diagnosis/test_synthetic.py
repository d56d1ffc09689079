"""Faults put into the model, with noise, are found; the same machine with noise is well."""

from __future__ import annotations

from functools import cache

import numpy as np

from validation.synthetic import Judged, judged, report

SIZES = tuple(16**k for k in range(3, 8))  # 4 KiB to 256 MiB


@cache
def found() -> tuple[Judged, ...]:
    """One operation on four machines with NVSwitch and InfiniBand; the seed is fixed."""
    return tuple(judged(("dgx-h100",), 1, seed=3, sizes=SIZES, sets=(("all_reduce",),)))


def test_the_cause_is_among_the_first_three() -> None:
    sick = [j for j in found() if j.cause != "healthy"]
    assert len({j.cause for j in sick}) >= 10
    assert np.mean([j.among for j in sick]) >= 0.8


def test_a_healthy_machine_with_noise_is_not_called_sick() -> None:
    well = [j for j in found() if j.cause == "healthy"]
    assert len(well) == 10
    assert np.mean([j.sick for j in well]) <= 0.05


def test_the_confusion_matrix_counts_every_draw() -> None:
    lines = report(found()).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| put in"))
    counts = [cell for line in lines[start + 2 :] for cell in line.split("|")[2:-2]]
    assert sum(int(cell) for cell in counts if cell.strip()) == len(found())
