from __future__ import annotations

import json
import re

import pytest

from commsim.report.page import Facts, Lines, Table, page, value_at

pytest.importorskip("jinja2")
DATA = {
    "duration_s": 0.002,
    "none": None,
    "rows": [{"size_bytes": 1024, "ok": True}, {"size_bytes": 2048, "ok": False}],
    "breakdown_s": {"launch": 1e-6},
    "notes": ["a < b", "</script><script>alert(1)</script>"],
}
PARTS = (
    Facts(title="Facts", rows=(("time", "duration_s"), ("absent", "none"))),
    Table(title="Rows", path="rows", columns=(("size", "size_bytes"), ("ok", "ok")), most=1),
    Table(title="Parts", path="breakdown_s", columns=(("part", "#key"), ("time", ""))),
    Table(title="Nothing", path="nothing", columns=(("x", "x"),)),
    Lines(title="Notes", path="notes"),
)


def test_values_are_found_by_path() -> None:
    assert value_at(DATA, "rows/1/size_bytes") == 2048
    assert value_at(DATA, "breakdown_s/launch") == 1e-6
    assert value_at(DATA, "rows/7/size_bytes") is None
    assert value_at(DATA, "duration_s/0") is None
    assert value_at(DATA, "") is DATA


def test_every_part_is_filled_from_the_data_and_empty_ones_are_left_out() -> None:
    text = page("Title <1>", PARTS, DATA)
    assert "<h1>Title &lt;1&gt;</h1>" in text
    assert '<td data-path="duration_s">2 ms</td>' in text
    assert '<td data-path="rows/0/size_bytes" class="number">1 KiB</td>' in text
    assert "rows/1/size_bytes" not in text
    assert "and 1 more rows" in text
    assert '<td data-path="breakdown_s/launch" class="number">1 us</td>' in text
    assert "<td>launch</td>" in text
    assert "Nothing" not in text
    assert "absent" not in text


def test_text_of_the_data_cannot_become_markup() -> None:
    text = page("t", PARTS, DATA)
    assert "a &lt; b" in text
    assert "alert(1)</script>" not in text
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert [json.loads(f) for f in found] == [DATA]


def test_pictures_stand_in_the_page_as_they_are() -> None:
    text = page("t", PARTS, DATA, [("curves & bands", "<svg><g/></svg>")])
    assert 'aria-label="curves &amp; bands"><svg><g/></svg></figure>' in text
