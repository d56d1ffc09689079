"""The page in a real browser: every control changes what it should; the console stays empty."""

from __future__ import annotations

import csv
import json
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest

from commsim.collectives.collective import Collective
from commsim.explore.answers import preset
from commsim.prediction import predict
from commsim.topology.load import load_cluster
from commsim.units import MIB, format_time

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("no Chromium here: apt-get install chromium", allow_module_level=True)

pytestmark = pytest.mark.slow
LIGHT = {"viewport": {"width": 1280, "height": 900}}


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as found:
        started = found.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


class Page:
    """The page opened at a query; `problems` is what the console says."""

    def __init__(self, browser: Any, address: str, query: str = "", **context: Any) -> None:
        self.address = address
        self.context = browser.new_context(**(LIGHT | context))
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.goto(f"{address}/{query}")
        self.settled()

    def settled(self) -> str:
        """The answer's text, once nothing is asked any more."""
        self.page.wait_for_function(
            "() => document.querySelector('#results[data-done]:not(.busy)') !== null"
        )
        return str(self.page.inner_text("main"))

    def after(self, act: Any) -> str:
        """The answer's text after an action that asks anew."""
        before = self.page.get_attribute("#results", "data-done")
        act()
        self.page.wait_for_function(
            "before => document.getElementById('results').dataset.done !== before", arg=before
        )
        return self.settled()

    def set(self, name: str, value: str) -> str:
        """The answer's text after a field got a value."""
        field = self.page.locator(f"[name={name}]")
        kind = field.evaluate("field => field.type")
        if kind == "select-one":
            return self.after(lambda: field.select_option(value))
        if kind == "checkbox":
            return self.after(lambda: field.set_checked(value == "1"))
        return self.after(lambda: field.fill(value))

    def download(self, button: str) -> str:
        with self.page.expect_download() as found:
            self.page.click(button)
        return Path(found.value.path()).read_text("utf-8")

    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlparse(self.page.url).query)


@pytest.fixture
def opened(browser: Any, address: str) -> Iterator[Any]:
    pages: list[Page] = []

    def open_at(query: str = "", **context: Any) -> Page:
        pages.append(Page(browser, address, query, **context))
        return pages[-1]

    yield open_at
    for page in pages:
        page.context.close()
        assert page.problems == []


def test_first_view_shows_what_the_library_says(opened: Any) -> None:
    text = opened().settled()
    for name in ("dgx-h100", "dgx-a100"):
        expected = predict(Collective("all_reduce", nbytes=64 * MIB), load_cluster(name, nodes=4))
        assert format_time(expected.duration) in text
        assert expected.bottleneck in text


def test_fields_of_a_cluster(opened: Any) -> None:
    page = opened()
    for name, value, shown in (
        ("a_preset", "dgx-h200", "A: dgx-h200, 4 nodes"),
        ("b_preset", "mi300x", "B: mi300x, 4 nodes"),
        ("a_nodes", "2", "A: dgx-h100, 2 nodes, 16 ×"),
        ("a_nics", "4", "NICs 4 x 50 GB/s"),
        ("b_nic_rate", "100Gbit/s", "NICs 8 x 12.5 GB/s"),
        ("a_library", "nccl@2.19", "nccl@2.19"),
        ("a_gpu", "H200-SXM-141GB", "32 × H200-SXM-141GB"),
        ("a_nodes", "0", "sides.0.nodes"),
        ("a_nic_rate", "400", "cannot be answered"),
    ):
        before = page.page.input_value(f"[name={name}]")
        assert shown not in page.settled()
        assert shown in page.set(name, value)
        assert page.query() == {name: [value]}
        page.set(name, before)
        assert page.query() == {}


def test_fields_of_an_operation(opened: Any) -> None:
    page = opened("?two=0")
    cluster = load_cluster("dgx-h100", nodes=4)
    for name, value, collective in (
        ("op", "all_gather", Collective("all_gather", nbytes=64 * MIB)),
        ("size", "1MiB", Collective("all_gather", nbytes=MIB)),
        ("dtype", "int8", Collective("all_gather", nbytes=MIB, dtype="int8")),
        ("size", "8", Collective("all_gather", nbytes=8, dtype="int8")),
        ("op", "barrier", Collective("barrier", dtype="int8")),
    ):
        page.set(name, value)
        expected = predict(collective, cluster)
        assert page.page.inner_text("dd.main") == format_time(expected.duration)


def test_the_range_of_sizes(opened: Any) -> None:
    page = opened("?low=1MiB&high=4MiB")
    page.page.click("text=Every size as a table")
    rows = page.page.locator("details:has-text('Every size') tbody tr")
    assert [rows.nth(k).locator("td").first.inner_text() for k in range(rows.count())] == [
        "1 MiB", "2 MiB", "4 MiB",
    ]  # fmt: skip
    page.set("low", "2MiB")
    assert rows.count() == 2
    page.set("high", "8MiB")
    assert rows.count() == 3


def test_the_slider_and_the_curve_pick_a_size(opened: Any) -> None:
    page = opened()
    page.page.focus("#slider")
    page.after(lambda: page.page.keyboard.press("ArrowRight"))
    assert page.page.input_value("[name=size]") == "128MiB"
    svg = page.page.locator("#curves svg").first
    page.after(lambda: svg.click(position={"x": 63, "y": 100}))
    assert page.page.input_value("[name=size]") == "8"


def test_the_curve_shows_time_too(opened: Any) -> None:
    page = opened()
    svg = page.page.locator("#curves svg").first
    assert svg.get_attribute("aria-label") == "bus bandwidth over sizes"
    line = svg.locator("polyline.a").get_attribute("points")
    page.page.select_option("[name=curve]", "time")
    assert svg.get_attribute("aria-label") == "time over sizes"
    assert svg.locator("polyline.a").get_attribute("points") != line
    svg.hover(position={"x": 63, "y": 100})
    assert page.page.inner_text("#reading").startswith("8 B: A ")


def test_one_cluster_alone(opened: Any) -> None:
    page = opened()
    assert "B: dgx-a100" not in page.set("two", "0")
    assert not page.page.is_visible("[name=b_preset]")
    assert page.page.locator("#topologies figure").count() == 1


def test_the_topology_follows_the_cluster(opened: Any) -> None:
    page = opened("?two=0&a_nodes=1")
    svg = page.page.locator("#topologies svg")
    assert svg.locator("rect.dot:not([rx])").count() == 8
    page.set("a_nodes", "2")
    assert svg.locator("rect.dot:not([rx])").count() == 16


SMI = """\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity
GPU0\t X \tPIX\tNODE\tNODE\t0-31\t0
GPU1\tPIX\t X \tNODE\tNODE\t0-31\t0
GPU2\tNODE\tNODE\t X \tPIX\t0-31\t0
GPU3\tNODE\tNODE\tPIX\t X \t0-31\t0
"""
STEP = "?tab=step&two=0&a_nodes=4&model=llama3-8b&tp=2&pp=2&dp=8&global_batch=64"


def test_fields_of_a_step(opened: Any) -> None:
    page = opened(STEP)
    page.page.click("text=A model of your own")
    first = page.settled()
    for name, value in (
        ("model", "llama2-7b"), ("seq_len", "2048"), ("global_batch", "128"),
        ("micro_batch", "2"), ("framework", "deepspeed"), ("schedule", "gpipe"),
        ("recompute", "full"), ("step_dtype", "float8"), ("zero_stage", "2"),
        ("sequence_parallel", "0"), ("overlap_grad_reduce", "0"), ("overlap_param_gather", "0"),
        ("tp_comm_overlap", "1"), ("tp", "4"), ("pp", "4"), ("dp", "4"), ("cp", "2"), ("ep", "2"),
        ("config", '{"extends": "llama3-8b", "num_hidden_layers": 16}'),
    ):  # fmt: skip
        field = page.page.locator(f"[name={name}]")
        box = field.evaluate("field => field.type") == "checkbox"
        before = str(int(field.is_checked())) if box else field.input_value()
        assert page.set(name, value) != first, name
        assert page.set(name, before) == first


def test_interleaving_changes_the_step(opened: Any) -> None:
    page = opened(STEP + "&schedule=interleaved&interleave=2")
    before = page.settled()
    assert page.set("interleave", "4") != before


def test_the_tabs_are_reached_by_keyboard(opened: Any) -> None:
    page = opened()
    page.page.focus("[name=tab][value=collective]")
    assert "MFU" in page.after(lambda: page.page.keyboard.press("ArrowRight"))
    assert page.page.is_visible("[name=model]")
    assert not page.page.is_visible("[name=op]")


def test_a_link_brings_everything_back(opened: Any) -> None:
    first = opened("?op=all_gather&size=1MiB&a_nodes=2&two=0&curve=time")
    first.set("a_nics", "2")
    second = opened("?" + urlparse(first.page.url).query)
    assert second.settled() == first.settled()
    assert second.page.input_value("[name=a_nics]") == "2"
    first.after(lambda: first.page.click("#reset"))
    assert first.query() == {}


def test_the_link_is_copied(opened: Any) -> None:
    page = opened("?size=1MiB", permissions=["clipboard-read", "clipboard-write"])
    page.page.click("#share")
    page.page.wait_for_function(
        "() => document.getElementById('status').textContent.includes('copied')"
    )
    assert page.page.evaluate("navigator.clipboard.readText()") == page.page.url


def test_text_of_ones_own_takes_the_presets_place(opened: Any) -> None:
    page = opened("?two=0")
    page.page.click("summary:has-text('A cluster of your own')")
    page.after(lambda: page.page.click("[data-do=copy]"))
    assert page.page.input_value("[name=a_text]") == preset({"preset": "dgx-h100"})["toml"]
    assert page.page.is_disabled("[name=a_preset]")
    page.set("a_text", 'extends = "dgx-a100"\nname = "mine"')
    assert "A: mine, 4 nodes, 32 × A100" in page.settled()
    assert "not valid TOML" in page.set("a_text", "x = ")
    assert "A: dgx-h100" in page.after(lambda: page.page.click("[data-do=clear]"))


def test_uploads(opened: Any, tmp_path: Path) -> None:
    page = opened("?two=0")
    small, large = tmp_path / "mine.toml", tmp_path / "large.toml"
    small.write_text('extends = "dgx-h200"\nname = "uploaded"')
    large.write_text("#" * 140_000)
    page.page.click("summary:has-text('A cluster of your own')")
    chooser = page.page.locator("[data-into=a_text]")
    assert "A: uploaded" in page.after(lambda: chooser.set_input_files(small))
    chooser.set_input_files(large)
    page.page.wait_for_function(
        "() => document.getElementById('status').textContent.includes('140000')"
    )
    assert "uploaded" in page.page.input_value("[name=a_text]")


def test_a_topology_is_uploaded(opened: Any, tmp_path: Path) -> None:
    """What nvidia-smi prints names no GPU: that is said, and then chosen."""
    page = opened("?two=0&a_nodes=1")
    page.page.click("summary:has-text('A cluster of your own')")
    printed = tmp_path / "topo.txt"
    printed.write_text(SMI)
    chooser = page.page.locator("[data-into=a_text]")
    assert "GPU" in page.after(lambda: chooser.set_input_files(printed))
    text = page.set("a_gpu", "A100-PCIe-80GB")
    assert "4 × A100-PCIe-80GB" in text
    assert page.page.locator("#topologies svg rect.dot:not([rx])").count() == 4
    page.page.click("[data-do=save]")
    page.page.wait_for_function(
        "() => document.getElementById('status').textContent.includes('topology file')"
    )


def test_a_config_is_uploaded(opened: Any, tmp_path: Path) -> None:
    page = opened(STEP)
    page.page.click("text=A model of your own")
    config = tmp_path / "config.json"
    config.write_text('{"extends": "llama3-8b", "num_hidden_layers": 16}')
    before = page.page.inner_text("dd.main")
    page.after(lambda: page.page.locator("[data-into=config]").set_input_files(config))
    assert page.page.inner_text("dd.main") != before
    assert page.page.is_disabled("[name=model]")


def test_the_links_that_bind_are_shown(opened: Any) -> None:
    """At 1 GiB between machines the NICs, in one machine NVLink, at 8 bytes none."""
    page = opened("?two=0&size=1GiB")
    bound = page.page.locator("#topologies line.binds")
    shown = [title.text_content() for title in bound.locator("title").all()]
    assert len(shown) == 4 * 8 * 2  # of each machine eight NICs, with a port and a cable each
    assert all("nic" in title and title.endswith("; binds") for title in shown)
    page.set("size", "8")
    assert bound.count() == 0
    assert "No link binds" in page.page.inner_text("#topologies")
    page.set("size", "1GiB")
    page.set("a_nodes", "1")
    page.page.wait_for_function(
        "() => document.querySelectorAll('#topologies line.binds').length === 8"
    )
    assert "nvlink of one GPU" in page.page.inner_text("#topologies figcaption")


def test_downloads(opened: Any) -> None:
    page = opened("?a_nodes=2&a_nics=4&low=1MiB&high=4MiB")
    found = json.loads(page.download("#json"))
    cluster = load_cluster("dgx-h100", nodes=2, **{"node.nics.count": 4})
    expected = predict(Collective("all_reduce", nbytes=64 * MIB), cluster)
    assert found["sides"][0]["at"]["duration_s"] == expected.duration
    rows = list(csv.DictReader(page.download("#csv").splitlines()))
    assert [row["side"] for row in rows] == ["A"] * 3 + ["B"] * 3
    each = predict(Collective("all_reduce", nbytes=MIB), cluster)
    assert float(rows[0]["duration_s"]) == each.duration
    assert float(rows[0]["interval_s_low"]) == each.interval[0]
    page.page.click("summary:has-text('A cluster of your own') >> nth=0")
    saved = tomllib.loads(page.download("[data-do=save] >> nth=0"))
    assert saved == {"extends": "dgx-h100", "nodes": 2, "node": {"nics": {"count": 4}}}


def test_a_step_is_downloaded_too(opened: Any) -> None:
    page = opened(STEP)
    found = json.loads(page.download("#json"))["sides"][0]["step"]
    (row,) = csv.DictReader(page.download("#csv").splitlines())
    assert float(row["duration_s"]) == found["duration_s"]
    assert float(row["breakdown_s.matmul"]) == found["breakdown_s"]["matmul"]


@pytest.mark.parametrize("query", ["", STEP, "?a_text=x%3D"])
@pytest.mark.parametrize(
    "context",
    [
        {"viewport": {"width": 360, "height": 740}},
        {"viewport": {"width": 640, "height": 450}, "device_scale_factor": 2},  # 1280 at 200 %
    ],
    ids=["phone", "200 %"],
)
def test_nothing_is_wider_than_the_screen(opened: Any, query: str, context: dict[str, Any]) -> None:
    page = opened(query, **context).page
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


CONTRAST = """() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map((v) => v / 255)
      .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = light(getComputedStyle(document.body).backgroundColor);
  return [...document.querySelectorAll('main *, label, legend, footer')].map((element) => {
    const style = getComputedStyle(element), drawn = element.closest('svg');
    if (drawn && element.tagName !== 'text') return 21;
    const own = drawn ? style.fill : style.color;
    const [low, high] = [ground, light(own)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  }).reduce((a, b) => Math.min(a, b));
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(opened: Any, scheme: str) -> None:
    """WCAG 2.2's contrast for text, 4.5 to 1."""
    page = opened(color_scheme=scheme).page
    assert page.evaluate(CONTRAST) >= 4.5


def test_every_control_has_a_name_and_is_reached_by_keyboard(opened: Any) -> None:
    page = opened().page
    unnamed = page.evaluate(
        "[...document.querySelectorAll('input, select, textarea, button')].filter((e) =>"
        " !(e.labels?.length || e.textContent.trim() || e.ariaLabel) || e.tabIndex < 0)"
        ".map((e) => e.outerHTML)"
    )
    assert unnamed == []
