"""Makes the two pictures of the live page in README: sixteen prompts through every lane, wide and on a phone.

Owns those files.  Starts ``everystep serve`` with the default model (``make serve`` fetches it), drives the page in a
real browser as a person would, and saves ``docs/figures/live-page.png`` (1440 pixels wide) and
``docs/figures/live-page-phone.png`` (390, dark).  On a quiet machine, as the page shows what the run took:

    python benchmarks/page_pictures.py

Needs the extra ``browser``, Debian's ``chromium``, and Pillow, which halves the files by a palette of 256 colours.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
MAX_BYTES = 300_000
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
PROMPT = "The bus leaves every morning at seven, and"
WIDE = {"viewport": {"width": 1440, "height": 900}, "color_scheme": "light", "locale": "en-US"}
PHONE = {
    "viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "locale": "en-US", "device_scale_factor": 2,
}  # fmt: skip
RUN_MS = 300_000


@contextmanager
def served(flags: list[str]) -> Iterator[str]:
    """The address of a server of our own, once it is ready."""
    command = [sys.executable, "-m", "everystep", "serve", "--port", "0", "--max-num-seqs", "16", *flags]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield read_url(process)
    finally:
        process.terminate()
        process.wait()


def read_url(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if found := re.search(r"at (http://[^\s:]+:\d+)", line):
            return found[1]
    raise SystemExit(f"the server never got ready:\n{said}")


def run_all_lanes(page: Page) -> None:
    """Sixteen prompts through each lane, and what that took."""
    send = page.get_by_role("button", name="Send")
    expect(send).to_be_enabled()
    page.get_by_label("Prompt", exact=True).fill(PROMPT)
    page.get_by_role("radio", name="16", exact=True).check(force=True)
    send.click()
    expect(page.locator("#try .ratio")).not_to_be_empty(timeout=RUN_MS)
    expect(send).to_be_enabled(timeout=RUN_MS)


def see_whole_run(page: Page) -> None:
    """The page itself shows all lanes' steps once they have run, and time stands still."""
    expect(page.get_by_role("button", name="Follow")).to_be_visible()
    page.mouse.move(2, 2)  # nothing is pointed at
    expect(page.locator('.lane[data-policy="static"] .counts')).to_contain_text("% held")
    page.wait_for_timeout(1_000)  # the shares beside each lane are told twice a second


def take(browser: Browser, url: str, context: dict[str, Any], shoot: Callable[[Page], bytes], name: str) -> None:
    page = browser.new_page(**context)
    page.goto(url)
    run_all_lanes(page)
    see_whole_run(page)
    save(shoot(page), FIGURES / name)
    page.close()


def down_to_the_last_lane(page: Page) -> bytes:
    box = page.locator("#lanes").bounding_box()
    assert box is not None
    height = box["y"] + box["height"] + 12
    return page.screenshot(
        full_page=True, clip={"x": 0, "y": 0, "width": box["x"] * 2 + box["width"], "height": height}
    )


def from_the_lanes_on(page: Page) -> bytes:
    """A phone's screen, scrolled to the lanes."""
    page.locator("#lanes").evaluate("(lanes) => lanes.scrollIntoView()")
    return page.screenshot()


def save(png: bytes, path: Path) -> None:
    """With a palette: the page has few colours."""
    image = Image.open(io.BytesIO(png)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    image.save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path}: {image.width} × {image.height}, {size:,} bytes")
    if size > MAX_BYTES:
        raise SystemExit(f"{path} has {size:,} bytes, more than {MAX_BYTES:,}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("flags", nargs="*", help="further flags of `everystep serve`, behind --")
    flags = parser.parse_args().flags
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("no chromium in PATH: apt install chromium")
    FIGURES.mkdir(parents=True, exist_ok=True)
    with served(flags) as url, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        take(browser, url, WIDE, down_to_the_last_lane, "live-page.png")
        take(browser, url, PHONE, from_the_lanes_on, "live-page-phone.png")
        browser.close()


if __name__ == "__main__":
    main()
