"""How smoothly the live page draws: 64 busy seats, 20 steps a second and 64 who wait, in a real browser.

Owns one measurement: frames a second, the worst frame and who works how much, near and far.  The server is the real
application with a scripted model, in a process of its own; the page is measured by its own ``requestAnimationFrame``.
Needs Chromium and playwright (extra ``browser``).  Run it as ``python benchmarks/page_frames.py [--seconds 8]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import httpx
import psutil
from playwright.sync_api import Locator, Page, sync_playwright

from everystep.api import create_app
from everystep.config import Settings
from everystep.engine.client import EngineClient
from everystep.http_server import HttpServer
from everystep.runner.fake import FakeRunner
from everystep.types import StepPlan, StepResult

MODEL = Path(__file__).parents[1] / "tests" / "golden" / "tiny" / "llama"
SEATS, WAITING, STEPS_PER_S = 64, 64, 20
MAX_TOKENS = 400  # of the tiny model's 512
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--enable-precise-memory-info",
]  # fmt: skip
FIRST_ZOOM = 50.0  # pixels a second
WHEEL_ZOOM = 1.0018
ZOOMS = {"a step is 50 pixels wide": 1000.0, "as the page begins": FIRST_ZOOM, "four minutes in view": 4.0}
TOO_LONG_S = 0.034  # of a frame, where there should be thirty a second

FRAMES = """
(seconds) => new Promise((resolve) => {
  const times = [];
  const frame = (now) => {
    times.push(now);
    if (now - times[0] < seconds * 1000) requestAnimationFrame(frame);
    else resolve(times);
  };
  requestAnimationFrame(frame);
})
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--history", type=float, default=20.0, help="seconds before the first measurement")
    parser.add_argument(
        "--profile", type=Path, help="write a CPU profile of the page here, for Chrome's developer tools"
    )
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
    else:
        measure(options.seconds, options.history, options.profile)


def measure(seconds: float, history_s: float, profile: Path | None) -> None:
    with busy_server() as (url, server), sync_playwright() as driver:
        alone = cpu_share(server, lambda: time.sleep(seconds))
        print(f"server {alone:.0%} of a core with nobody looking")
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(url)
        canvas = page.locator('.lane[data-policy="continuous"] canvas')
        canvas.scroll_into_view_if_needed()
        time.sleep(history_s)
        session = page.context.new_cdp_session(page)
        if profile is not None:
            session.send("Profiler.enable")
            session.send("Profiler.start")
        zoom = FIRST_ZOOM
        for words, wanted in ZOOMS.items():
            wheel(page, canvas, wanted / zoom)
            zoom = wanted
            look(words, seconds, page, server)
        turn_wheel(page, canvas, seconds)
        page.locator("#controls").get_by_role("button", name="Pause").click()
        look("paused, far", seconds, page, server)
        point(page, canvas, seconds)
        if profile is not None:
            profile.write_text(json.dumps(session.send("Profiler.stop")["profile"]))
        heap_mib = page.evaluate("performance.memory.usedJSHeapSize") / 2**20
        num_steps = httpx.get(f"{url}/figures", timeout=60).json()["last_step"] + 1
        print(f"heap of the page {heap_mib:.0f} MiB after {num_steps} steps")
        browser.close()


def look(words: str, seconds: float, page: Page, server: psutil.Process) -> None:
    found: list[list[float]] = []
    share = cpu_share(server, lambda: found.append(frames_of(page, seconds)))
    report(words, found[0], f"server {share:.0%}")


def wheel(page: Page, canvas: Locator, factor: float) -> None:
    """Zoom as a person does, with Ctrl and the wheel: the page has a factor for each unit of it."""
    canvas.hover(position={"x": 400, "y": 20})
    page.keyboard.down("Control")
    page.mouse.wheel(0, -math.log(factor) / math.log(WHEEL_ZOOM))
    page.keyboard.up("Control")
    page.mouse.move(5, 5)


def turn_wheel(page: Page, canvas: Locator, seconds: float) -> None:
    """In by a hundredth and out by a hundredth, so that everything is drawn anew each time."""
    canvas.hover(position={"x": 400, "y": 20})
    page.keyboard.down("Control")
    with measured(page, seconds, "a wheel zooms, far"):
        for n in range(int(seconds * 10)):
            page.mouse.wheel(0, 6 if n % 20 < 10 else -6)
            time.sleep(0.05)
    page.keyboard.up("Control")


def point(page: Page, canvas: Locator, seconds: float) -> None:
    with measured(page, seconds, "a pointer moves over it, far"):
        for n in range(int(seconds * 10)):
            canvas.hover(position={"x": 500 - 5 * (n % 60), "y": 3 + 2 * (n % 60)}, force=True)
            time.sleep(0.05)


@contextmanager
def measured(page: Page, seconds: float, words: str) -> Iterator[None]:
    """Frames while something is done with the page."""
    page.evaluate(f"(seconds) => {{ window.measured = ({FRAMES})(seconds); }}", seconds)
    yield
    report(words, gaps(page.evaluate("window.measured")))


def frames_of(page: Page, seconds: float) -> list[float]:
    return gaps(page.evaluate(FRAMES, seconds))


def gaps(times_ms: list[float]) -> list[float]:
    """Seconds from frame to frame."""
    return [(after - before) / 1000 for before, after in pairwise(times_ms)]


def report(words: str, frames: list[float], more: str = "") -> None:
    slow = sum(frame > TOO_LONG_S for frame in frames)
    print(
        f"{words:30} {len(frames) / sum(frames):5.1f} frames/s, worst {max(frames) * 1000:4.0f} ms,"
        f" {slow} of {len(frames)} over {TOO_LONG_S * 1000:.0f} ms; {more}",
        flush=True,
    )


def cpu_share(process: psutil.Process, act: Callable[[], None]) -> float:
    """Of one core, while ``act`` runs."""
    began_s, began = time.perf_counter(), sum(process.cpu_times()[:2])
    act()
    return float(sum(process.cpu_times()[:2]) - began) / (time.perf_counter() - began_s)


@contextmanager
def busy_server() -> Iterator[tuple[str, psutil.Process]]:
    command = [sys.executable, __file__, "--serve"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()


class PacedRunner(FakeRunner):
    """Says any token, twenty times a second."""

    def __init__(self) -> None:
        super().__init__(vocab_size=384)
        self._next_s = 0.0

    def run(self, plan: StepPlan) -> StepResult:
        self._next_s = max(self._next_s + 1 / STEPS_PER_S, time.perf_counter())
        result = super().run(plan)
        time.sleep(max(0.0, self._next_s - time.perf_counter()))
        return result


async def serve() -> None:
    """The server's side: the application, its address on the first line, and its clients."""
    settings = Settings(model=str(MODEL), served_model_name="tiny", kv_cache_gib=0.01, max_num_seqs=SEATS)
    engine = EngineClient.in_process(settings, PacedRunner)
    app = create_app(engine=engine)
    sock = socket.create_server(("127.0.0.1", 0))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), timeout=None) as http,
    ):
        await engine.wait_ready()
        print(f"http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
        async with asyncio.TaskGroup() as group:
            for n in range(SEATS + WAITING):
                group.create_task(ask_for_ever(http, n))
            group.create_task(HttpServer(app, settings).serve(sockets=[sock]))


async def ask_for_ever(http: httpx.AsyncClient, number: int) -> None:
    lengths = random.Random(number)
    while True:
        body = {"prompts": [f"prompt {number}"], "max_tokens": lengths.randint(50, MAX_TOKENS), "policy": "continuous"}
        (await http.post("http://tiny/generate", json=body)).raise_for_status()


if __name__ == "__main__":
    main()
