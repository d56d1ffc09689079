"""How fast the page of `commsim explore` answers in a browser: `python benchmarks/explore.py`.

First view: from opening the address to the drawn answer. Update: from a changed field to the drawn
answer, the first time that a value is asked for: at once (new) or after the rest that a reader
takes (rested); and again (known). Needs Playwright and a Chromium (`apt-get install chromium`).
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from typing import Any

from playwright.sync_api import sync_playwright

FIRST_LIMIT, UPDATE_LIMIT, REST = 2.0, 0.3, 6.0  # s
# tab, field, two values: the page starts at neither
CASES = (
    ("collective", "op", ("all_gather", "all_to_all")),
    ("collective", "size", ("1MiB", "1GiB")),
    ("collective", "a_nodes", ("8", "64")),
    ("collective", "a_preset", ("dgx-h200", "gb200-nvl72")),
    ("collective", "a_nics", ("4", "2")),
    ("step", "global_batch", ("256", "512")),
    ("step", "pp", ("2", "1")),
    ("step", "model", ("llama3-8b", "llama2-70b")),
)
# Resolves with the ms from the event to the picture that follows the answer.
CHANGE = """([name, value]) => new Promise((done) => {
  const field = document.forms.controls.elements[name];
  const results = document.getElementById('results');
  const start = performance.now();
  new MutationObserver((_, observer) => {
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
  }).observe(results, { attributes: true, attributeFilter: ['data-done'] });
  field.value = value;
  field.dispatchEvent(new Event('input', { bubbles: true }));
})"""
READY = "() => document.querySelector('#results[data-done]:not(.busy)') !== null"


def row(name: str, seconds: float, limit: float) -> None:
    """One line of the table."""
    print(f"{name:<44}{1e3 * seconds:>8.0f} ms   {'ok' if seconds <= limit else 'over'}")


def change(page: Any, name: str, value: str) -> float:
    """Seconds from a changed field to the drawn answer, once the page is at rest."""
    page.wait_for_function(READY)
    return float(page.evaluate(CHANGE, [name, value])) / 1e3


def views(browser: Any, address: str) -> None:
    """The first view, the server having just started, and later ones."""
    times = []
    for _ in range(5):
        page = browser.new_page()
        start = time.perf_counter()
        page.goto(address)
        page.wait_for_function(READY)
        times.append(time.perf_counter() - start)
        page.close()
    row("first view, of a server just started", times[0], FIRST_LIMIT)
    row("first view, median of later ones", statistics.median(times[1:]), FIRST_LIMIT)


def updates(browser: Any, address: str) -> None:
    """Every case, new and known, with two clusters beside each other."""
    for tab, name, (one, other) in CASES:
        page = browser.new_page()
        page.goto(f"{address}?tab={tab}")
        new = change(page, name, one)
        page.wait_for_timeout(1e3 * REST)
        rested = change(page, name, other)
        known = [change(page, name, value) for value in (one, other) * 2]
        row(f"{tab}: {name}, new", new, UPDATE_LIMIT)
        row(f"{tab}: {name}, rested", rested, UPDATE_LIMIT)
        row(f"{tab}: {name}, known", statistics.median(known), UPDATE_LIMIT)
        page.close()


def main() -> None:
    """Prints the table."""
    command = [sys.executable, "-m", "commsim", "explore", "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            address = server.stdout.readline().split()[2]
            with sync_playwright() as play:
                browser = play.chromium.launch(
                    executable_path=shutil.which("chromium"), args=["--no-sandbox"]
                )
                views(browser, address)
                updates(browser, address)
                browser.close()
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
