"""What a timeline says of its links over time, and how it is put as plain figures."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings

from commsim.collectives.algorithms.ring import Ring
from commsim.collectives.collective import Collective
from commsim.engine.link_load import link_load
from commsim.engine.timeline import Timeline
from commsim.errors import UnknownNameError
from tests.engine.timelines import MB, MS, US, chain, played, ports, timelines


def test_plain_figures_of_a_chain() -> None:
    """Two hops of 1.003 ms after 10 us of launch; each link busy for 1 of 2.013 ms."""
    found = played(chain(), network=ports(3), launch=10 * US).to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["duration_s"] == pytest.approx(2.016 * MS)
    (one,) = found["collectives"]
    assert one["operation"] == "broadcast"
    assert one["size_bytes"] == MB
    assert one["end_s"] == one["duration_s"] == found["duration_s"]
    assert one["bus_bandwidth_bytes_per_s"] == pytest.approx(MB / (2.016 * MS))
    assert one["critical_path_s"] == pytest.approx(
        {"launch": 10 * US, "late": 0, "software": 0, "transfer": 2 * MS, "latency": 6 * US}
    )
    assert [r["rank"] for r in one["ranks"]] == [0, 1, 2]
    assert [r["arrival_s"] for r in one["ranks"]] == [10 * US] * 3
    assert [r["end_s"] for r in one["ranks"]] == pytest.approx([1.01 * MS, 2.013 * MS, 2.016 * MS])
    assert [r["transferring_s"] for r in one["ranks"]] == pytest.approx(
        [1 * MS, 2.003 * MS, 1.003 * MS]
    )
    assert one["watchdog"] == []
    links = {link["name"]: link for link in found["links"]}
    assert set(links) == {
        "rank0 -> switch",
        "rank1 -> switch",
        "switch -> rank1",
        "switch -> rank2",
    }
    for link in links.values():
        assert link["bytes"] == MB
        assert link["utilization"] == pytest.approx(1 / 2.013)
        assert link["capacity_bytes_per_s"] == 1e9
    assert found["links_left_out"] == 0
    assert found["notes"] == ["made up"]


def test_plain_figures_of_what_never_ends() -> None:
    found = played(chain(), network=ports(3), deaths={1: 0.0}).to_dict()
    json.dumps(found, allow_nan=False)
    (one,) = found["collectives"]
    assert found["duration_s"] is one["end_s"] is one["critical_path_s"] is None
    assert [(w["rank"], w["waits_for"], w["cause"], w["cause_in"]) for w in one["watchdog"]] == [
        (0, 1, "dead", 1),
        (2, 1, "dead", 1),
    ]
    assert [w["chain"] for w in one["watchdog"]] == [[0, 1], [2, 1]]


def test_the_hottest_links_come_first_and_the_rest_are_counted() -> None:
    """Ranks 0 to 29 of a ring, and once more from 0 to 1: 60 links, two of them twice as hot."""
    ring = Ring().schedule(Collective("all_gather", 30 * MB, dtype="uint8"), 30)
    found = played(ring, chain(29 * MB, 2), network=ports(30)).to_dict()
    assert [c["n_ranks"] for c in found["collectives"]] == [30, 2]
    assert len(found["links"]) == 50
    assert found["links_left_out"] == 10
    assert [link["name"] for link in found["links"][:2]] == ["rank0 -> switch", "switch -> rank1"]
    assert [link["bytes"] for link in found["links"][:3]] == [58 * MB, 58 * MB, 29 * MB]


def test_the_load_of_links_over_time() -> None:
    """4 steps over the 2.003 ms until all is sent: the first hop fills 1 ms of them."""
    load = link_load(played(chain(), network=ports(3)), steps=4)
    width = 2.003 / 4
    assert load.edges / MS == pytest.approx(np.arange(5) * width)
    by_link = dict(zip(load.links, load.share, strict=True))
    first = [1, 1 - (2 * width - 1) / width, 0, 0]
    assert by_link["rank0 -> switch"] == pytest.approx(first)
    assert by_link["switch -> rank1"] == pytest.approx(first)
    assert by_link["rank1 -> switch"] == pytest.approx(first[::-1])


def test_a_link_by_its_name() -> None:
    found = played(chain(), network=ports(3))
    assert found.bytes_of("rank0 -> switch") == MB
    assert found.bytes_of("rank2 -> switch") == 0
    with pytest.raises(UnknownNameError, match="did you mean 'rank0 -> switch'"):
        found.bytes_of("rank0 -> swich")


def test_only_the_hottest_links_are_sampled() -> None:
    load = link_load(played(chain(n=4), chain(MB, 2), network=ports(4)), most=2)
    assert load.links == ("rank0 -> switch", "switch -> rank1")


@settings(max_examples=100, deadline=None)
@given(found=timelines(whole=False))
def test_the_load_adds_up_to_the_bytes(found: Timeline) -> None:
    load = link_load(found, steps=7)
    number = {name: i for i, name in enumerate(found.network.links)}
    rows = [number[name] for name in load.links]
    assert rows == sorted(rows, key=lambda i: (-found.link_bytes[i], i))
    assert set(rows) == set(np.flatnonzero(found.link_bytes).tolist())
    carried = load.share.sum(axis=1) * np.diff(load.edges)[0] * found.network.capacity[rows]
    assert carried == pytest.approx(found.link_bytes[rows], rel=1e-6)
    assert (load.share >= 0).all()
