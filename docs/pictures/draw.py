"""Draws every picture of docs/pictures.md and docs/explore.md: `python docs/pictures/draw.py`.

Commands are those that the page shows; what is measured are published points (validation/published:
a DGX Cloud H100 machine, NCCL 2.21.5). The browser's pictures need Playwright and a Chromium.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
PUBLISHED, RANKS = "dgxc-h100-1n-ar", 8
BLOCK = re.compile(r"^```(?:sh|text)\n(.*?)^```", re.DOTALL | re.MULTILINE)
READY = "() => document.querySelector('#results[data-done]:not(.busy)') !== null"
TWO_GPUS = "%09GPU0%09GPU1%0AGPU0%09 X %09PHB%0AGPU1%09PHB%09 X "
SHOTS = (  # name, query, light or dark, width, height, pixels to one, what of the page
    ("explore", "?size=1GiB", "light", 1280, 1180, 1, ""),
    ("explore-topology", "?size=1GiB&two=0", "light", 1280, 900, 1, "#topologies"),
    ("explore-step", "?tab=step", "dark", 1280, 900, 1, ""),
    ("explore-own", f"?two=0&a_nodes=1&a_gpu=L40S&a_text={TWO_GPUS}", "dark", 1000, 860, 1, ""),
    ("explore-phone", "?size=1GiB", "light", 390, 800, 1.5, ""),
)


def measured(folder: Path) -> None:
    """The published points as a file of measurements: all_reduce.log of pictures.md."""
    with open(REPOSITORY / "validation/published/points.csv", encoding="utf-8") as file:
        rows = [
            {
                "operation": "all_reduce", "size": int(row["nbytes"]), "n_ranks": RANKS,
                "duration_s": 1e-6 * float(row["time_us"]),
            }
            for row in csv.DictReader(file) if row["log"] == PUBLISHED
        ]  # fmt: skip
    (folder / "all_reduce.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


def commands() -> None:
    """What pictures.md shows, for every picture that it names."""
    page = (HERE.parent / "pictures.md").read_text(encoding="utf-8")
    wanted = set(re.findall(r"\]\(pictures/([\w.-]+)\)", page))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measured(folder)
        for line in (line for block in BLOCK.findall(page) for line in block.splitlines()):
            drawn = re.search(r"--plot (\S+)", line)
            if drawn and drawn[1] in wanted:
                done = subprocess.run(
                    [sys.executable, "-m", *line.split()], cwd=folder, capture_output=True,
                    text=True, check=False,
                )  # fmt: skip
                if done.returncode not in (0, 1):
                    raise SystemExit(f"{line}: {done.stderr}")
                shutil.copy(folder / drawn[1], HERE / drawn[1])
                lighter(HERE / drawn[1])
                sys.stdout.write(f"{drawn[1]}\n")


def lighter(path: Path) -> None:
    """A .png in 256 colours, a fifth of its size."""
    if path.suffix == ".png":
        from PIL import Image

        Image.open(path).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE).save(
            path, optimize=True
        )


def shots() -> None:
    """The page in the browser."""
    from playwright.sync_api import sync_playwright

    server = subprocess.Popen(
        [sys.executable, "-m", "commsim", "explore", "--port", "0", "--no-browser"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert server.stdout
        address = server.stdout.readline().split()[2]
        with sync_playwright() as play:
            browser = play.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            for name, query, scheme, width, height, scale, part in SHOTS:
                context = browser.new_context(
                    color_scheme=scheme, viewport={"width": width, "height": height},
                    device_scale_factor=scale,
                )  # fmt: skip
                page = context.new_page()
                page.goto(address + query)
                page.wait_for_function(READY)
                if "a_text" in query:
                    page.click("summary:has-text('A cluster of your own')")
                page.wait_for_timeout(500)
                whole = page.locator(part) if part else page
                whole.screenshot(path=HERE / f"{name}.png")
                context.close()
                lighter(HERE / f"{name}.png")
                sys.stdout.write(f"{name}.png\n")
            browser.close()
    finally:
        server.terminate()


if __name__ == "__main__":
    commands()
    shots()
