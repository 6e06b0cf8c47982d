"""A report in a real headless Chromium: console errors, what is cut off, what is drawn."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)
CUT_OFF = """
const out = [], width = document.documentElement.clientWidth;
if (document.documentElement.scrollWidth > width) out.push("the page is " + \
document.documentElement.scrollWidth + " wide");
for (const one of document.querySelectorAll("body *")) {
  if (one.closest("svg, script, style, .js-plotly-plot") || one.closest("details:not([open])")) \
continue;
  const box = one.getBoundingClientRect();
  if (box.width && (box.right > width + 1 || box.left < -1)) out.push(one.tagName + " " + \
one.textContent.slice(0, 40));
  if (one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX === "hidden") \
out.push("hidden: " + one.tagName);
}
for (const plot of document.querySelectorAll(".js-plotly-plot")) {
  const frame = plot.getBoundingClientRect();
  for (const text of plot.querySelectorAll(".main-svg text")) {
    const box = text.getBoundingClientRect();
    if (box.width && (box.right > frame.right + 2 || box.left < frame.left - 2 || box.bottom > \
frame.bottom + 2 || box.top < frame.top - 2))
      out.push(plot.id + " text: " + text.textContent);
  }
}
return out;
"""
DRAWN = """
return [...document.querySelectorAll("div.chart")].map(one => ({id: one.id,
  marks: one.querySelectorAll(".barlayer path, .scatterlayer path, .scatterlayer .point").length}));
"""


@contextmanager
def browser(folder: Path) -> Iterator[Any]:
    """A Chromium; screen() says how wide its window is. Debian's packages chromium and
    chromium-driver must be there.
    """
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert chromium and driver, (
        "reports are tested in a real browser: install Debian's chromium and chromium-driver"
    )
    options = Options()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(options=options, service=Service(driver)) as opened:
        yield opened


def screen(opened: Any, width: int, dark: bool = False) -> None:
    """A screen so wide, for the pages that are opened from now on."""
    size = {"width": width, "height": 1600, "deviceScaleFactor": 1, "mobile": width < 600}
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def faults(opened: Any, page: Path) -> list[str]:
    """What is wrong with a page: errors of the console, elements cut off, charts without a mark."""
    opened.get(page.absolute().as_uri())
    console = [
        line["message"]
        for line in opened.get_log("browser")
        if line["level"] in ("SEVERE", "WARNING")
    ]
    empty = [f"{one['id']} is empty" for one in opened.execute_script(DRAWN) if not one["marks"]]
    return [*console, *opened.execute_script(CUT_OFF), *empty]
