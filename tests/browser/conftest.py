"""A browser for all tests of the page, and a page that notes everything it shouldn't do."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from browser.staged import Stage, staged

playwright = pytest.importorskip("playwright.sync_api", reason="the extra `browser` isn't installed")

playwright.expect.set_options(timeout=30_000)  # milliseconds: the machine may be busy

# Headless, as root in a container, and silent: without these Chromium asks its makers' servers for things of its own.
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test in this folder needs a browser."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="module")
def chromium() -> Iterator[object]:
    """Ended with its file: the driver has an event loop in this thread, beside which no other test's could run."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert path is not None, "no chromium in PATH: apt install chromium"
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


class Watched:
    """A page and what it did that it shouldn't: errors in its console, requests to other hosts."""

    def __init__(self, page: object, host: str) -> None:
        self.page = page
        self.errors: list[str] = []
        self.foreign: list[str] = []
        page.on("console", lambda message: message.type in ("error", "warning") and self.errors.append(message.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self._note(request.url, host))

    def _note(self, url: str, host: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob") and parts.netloc != host:
            self.foreign.append(url)

    def check(self) -> None:
        assert self.errors == []
        assert self.foreign == []


@pytest.fixture
def start_stage() -> Iterator[Callable[..., Stage]]:
    """``start_stage(**settings)``: a ready server, which is there until the pages are closed."""
    with ExitStack() as stages:
        yield lambda **settings: stages.enter_context(staged(**settings))


@pytest.fixture
def stage(start_stage) -> Stage:
    return start_stage()


@pytest.fixture
def open_page(chromium, start_stage):
    """``open_page(url, **context)``: the page, watched, in a context of its own.  Its misdeeds fail the test."""
    opened = []

    def open_(url: str, *, is_checked: bool = True, **options):
        context = chromium.new_context(**{"viewport": WIDE, "locale": "en-US", **options})
        watched = Watched(context.new_page(), urlsplit(url).netloc)
        watched.page.set_default_timeout(30_000)
        watched.page.goto(url)
        opened.append((context, watched, is_checked))
        return watched.page

    yield open_
    for context, watched, is_checked in opened:
        context.close()
        if is_checked:
            watched.check()
