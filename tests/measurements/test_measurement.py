from __future__ import annotations

import pytest

import commsim
from commsim import Collective, Measurement
from commsim.errors import CollectiveError


def test_bandwidths_are_those_of_nccl_tests() -> None:
    reduced = Measurement(Collective("all_reduce", 1000), duration=1e-6, n_ranks=4)
    assert reduced.algorithm_bandwidth == pytest.approx(1e9)
    assert reduced.bus_bandwidth == pytest.approx(1.5e9)  # 2 (4 - 1) / 4
    gathered = Measurement(Collective("all_gather", 1000), duration=1e-6, n_ranks=4)
    assert gathered.bus_bandwidth == pytest.approx(0.75e9)
    sent = Measurement(Collective("send_recv", 1000), duration=1e-6, n_ranks=4)
    assert sent.bus_bandwidth == pytest.approx(1e9)


def test_the_number_of_ranks_is_found() -> None:
    cluster = commsim.load_cluster("dgx-h100", nodes=2)
    everyone = Measurement(Collective("barrier"), duration=1.0, cluster=cluster)
    assert everyone.n_ranks == 16
    pair = Measurement(Collective("barrier", ranks=(0, 8)), duration=1.0, cluster=cluster)
    assert pair.n_ranks == 2
    with pytest.raises(CollectiveError, match="n_ranks: expected it, or a cluster"):
        Measurement(Collective("barrier"), duration=1.0)
    with pytest.raises(CollectiveError, match="2 or more, got 1"):
        Measurement(Collective("barrier"), duration=1.0, n_ranks=1)


@pytest.mark.parametrize("duration", [0.0, -1.0, float("nan"), float("inf")])
def test_a_duration_is_a_positive_time(duration: float) -> None:
    with pytest.raises(CollectiveError, match="duration: expected seconds > 0"):
        Measurement(Collective("barrier"), duration=duration, n_ranks=2)


def test_provenance_and_samples_are_frozen() -> None:
    kept = Measurement(
        Collective("barrier"),
        duration=1.0,
        n_ranks=2,
        provenance={"file": "a.log", "line": 3},  # type: ignore[arg-type]
        samples=[1, 2],  # type: ignore[arg-type]
    )
    assert kept.provenance == (("file", "a.log"), ("line", "3"))
    assert kept.samples == (1.0, 2.0)
    assert hash(kept) == hash(kept)
    with pytest.raises(CollectiveError, match="samples"):
        Measurement(Collective("barrier"), duration=1.0, n_ranks=2, samples=(1.0, -1.0))
