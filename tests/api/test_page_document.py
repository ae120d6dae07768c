"""A page as one document: the policy names what is in it by digests that are computed here anew, and nothing else."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from everystep.api import create_app
from everystep.api.page.document import Document, live_page, make_document

SRC = Path(__file__).parents[2] / "src"
BARE = "<!doctype html><title>t</title><!-- everything --><body>"


class Seen(HTMLParser):
    """What a browser would find in a document: the texts of scripts and styles, and every attribute."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {"script": [], "style": []}
        self.attributes: list[tuple[str, str | None]] = []
        self.comments: list[str] = []
        self._within = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        if tag in self.texts:
            self._within = tag
            self.texts[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within:
            self.texts[self._within][-1] += data

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)


def directives(policy: str) -> dict[str, list[str]]:
    words = [part.split() for part in policy.split(";")]
    return {name: values for name, *values in words}


def digest(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def document(**parts: Any) -> Document:
    return make_document(BARE, **{"styles": ["p{}"], "scripts": ["var a"], "module": "a = 1", **parts})


def test_the_policy_lists_exactly_the_scripts_and_styles_that_the_document_has() -> None:
    page = live_page()
    seen, policy = Seen(page.body.decode()), directives(page.policy)
    assert len(seen.texts["script"]) == 2, "the charts' library, and all that is ours"
    assert policy["script-src"] == [digest(text) for text in seen.texts["script"]]
    assert policy["style-src"] == [digest(text) for text in seen.texts["style"]]
    assert all(text.strip() for text in (*seen.texts["script"], *seen.texts["style"]))


def test_nothing_else_runs_or_is_fetched_from_elsewhere() -> None:
    policy = directives(live_page().policy)
    assert policy["default-src"] == ["'none'"]
    assert policy["connect-src"] == ["'self'"]
    for name in ("base-uri", "form-action", "frame-ancestors", "trusted-types"):
        assert policy[name] == ["'none'"]
    assert policy["require-trusted-types-for"] == ["'script'"]
    allowed = {"'none'", "'self'", "'script'", "data:", "blob:"}
    values = {value for name, words in policy.items() for value in words if not value.startswith("'sha256-")}
    assert values <= allowed, "no unsafe-inline, no unsafe-eval, no host, no scheme of the network"
    assert not {"data:", "blob:"} & {*policy["script-src"], *policy["style-src"], *policy["connect-src"]}


def test_the_document_asks_for_no_other_and_has_no_attribute_that_runs_or_styles() -> None:
    seen = Seen(live_page().body.decode())
    assert [value for name, value in seen.attributes if name in ("src", "href", "action")] == [
        value for name, value in seen.attributes if name == "href" and str(value).startswith("data:image/svg+xml,")
    ]
    assert [name for name, _ in seen.attributes if name == "style" or name.startswith("on")] == []
    assert seen.comments == [], "the place for everything is taken"


def test_the_page_is_small() -> None:
    """It comes whole with each look: two and a half seconds on a slow line of a megabit."""
    assert len(live_page().body) < 300_000


@pytest.mark.parametrize("script", ["x = '</script>'", "x = '</ScRiPt'", "if (a<!--b) {}"])
@pytest.mark.parametrize("kind", ["scripts", "module"])
def test_a_script_that_would_end_or_hide_where_it_shouldn_t_is_refused(script: str, kind: str) -> None:
    with pytest.raises(ValueError, match="ends, or hides"):
        document(**{kind: script if kind == "module" else [script]})


def test_a_style_that_would_end_where_it_shouldn_t_is_refused() -> None:
    with pytest.raises(ValueError, match="</style"):
        document(styles=["p::after { content: '</STYLE>' }"])


@pytest.mark.parametrize("html", ["<p>", BARE + "<!-- everything -->"])
def test_a_page_without_one_place_for_everything_is_refused(html: str) -> None:
    with pytest.raises(ValueError, match="needs one"):
        make_document(html, styles=[], scripts=[], module="")


def test_any_text_comes_out_as_it_went_in_and_is_counted_in_bytes() -> None:
    texts = {
        "styles": ["q::before { content: '한글 🙂 \\1' }"],
        "scripts": ["a = 'ü & < > \\g<0>'"],
        "module": "b = `é`",
    }
    page = document(**texts)
    seen, policy = Seen(page.body.decode()), directives(page.policy)
    assert seen.texts["script"] == [*texts["scripts"], texts["module"]]
    assert seen.texts["style"] == texts["styles"]
    assert policy["script-src"] == [digest(text) for text in seen.texts["script"]]
    assert policy["style-src"] == [digest(text) for text in seen.texts["style"]]


def test_the_page_is_made_with_the_application_and_never_again() -> None:
    live_page.cache_clear()
    create_app()
    assert live_page.cache_info().misses == 1
    create_app()
    assert live_page.cache_info().misses == 1


def test_nothing_is_read_at_import() -> None:
    program = (
        "import everystep.api.app\n"
        "from everystep.api.page.document import live_page\n"
        "print(live_page.cache_info().misses)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={"PYTHONPATH": str(SRC)}, check=True
    )
    assert done.stdout == "0\n"
