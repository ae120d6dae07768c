"""Every word of the page is there in each of its languages, with the same places for values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

import everystep.api.page

FOLDER = Path(everystep.api.page.__file__).parent
TABLE = re.compile(r"translator\((\{\n.*?\n\})\);", re.DOTALL)  # as the house's formatting has it

# What of a table can be compared: of words the names in braces, of functions what they say of 1 and of 2.
READ = """(source) => {
  const table = (0, eval)(`(${source})`.replace(/\\bnumber\\(/g, "String("));
  const read = (words) => {
    if (typeof words === "function") {
      const values = new Proxy({}, { get: (_, name) => (name === Symbol.iterator ? undefined : 2) });
      return { kind: "words", text: String(words(values)), names: null };
    }
    if (typeof words === "object") return { kind: "table", keys: Object.keys(words).sort() };
    return { kind: "words", text: words, names: [...words.matchAll(/\\{(\\w+)\\}/g)].map((found) => found[1]).sort() };
  };
  return Object.fromEntries(Object.entries(table).map(([tag, words]) =>
    [tag, Object.fromEntries(Object.entries(words).map(([key, value]) => [key, read(value)]))]));
}"""


def tables() -> dict[str, str]:
    return {path.name: found[1] for path in sorted(FOLDER.glob("*.js")) if (found := TABLE.search(path.read_text()))}


@pytest.fixture(scope="module")
def blank(chromium):
    page = chromium.new_page()
    yield page
    page.close()


def test_every_file_that_speaks_has_its_table_where_this_test_finds_it():
    speaking = {path.name for path in FOLDER.glob("*.js") if "translator(" in path.read_text()} - {"words.js"}
    assert set(tables()) == speaking
    assert len(speaking) >= 8


def test_each_table_has_the_same_keys_and_places_in_both_languages(blank):
    for name, source in tables().items():
        words = blank.evaluate(READ, source)
        assert set(words) == {"en", "ko"}, name
        assert set(words["en"]) == set(words["ko"]), name
        for key, english in words["en"].items():
            korean = words["ko"][key]
            assert english["kind"] == korean["kind"], f"{name}: {key}"
            assert english.get("keys") == korean.get("keys"), f"{name}: {key}"
            if english.get("names") and korean.get("names"):
                assert english["names"] == korean["names"], f"{name}: {key}"


def test_each_korean_sentence_is_korean(blank):
    """What has no Hangul is a sign, a name or a unit."""
    without = {}
    for name, source in tables().items():
        for key, words in blank.evaluate(READ, source)["ko"].items():
            text = re.sub(r"\{\w+\}", "", words.get("text", ""))
            if re.search("[a-z]{3,}", text) and not re.search("[가-힣]", text):
                without[f"{name}: {key}"] = text
    assert without == {}


def test_every_key_that_is_asked_for_is_there_and_every_one_that_is_there_is_asked_for():
    for name, source in tables().items():
        text = (FOLDER / name).read_text()
        rest = text.replace(source, "")
        keys = set(re.findall(r"^    (\w+):", source.split("\n  ko: {")[0], re.MULTILINE))
        asked = set(re.findall(r"\w+Words\(\s*\"(\w+)\"", rest))
        assert asked <= keys, f"{name} asks for {asked - keys}"


def test_the_language_and_the_colours_that_are_chosen_are_kept(stage, open_page):
    page = open_page(stage.url)
    page.get_by_label("Colours").select_option("dark")
    assert (
        page.evaluate("() => getComputedStyle(document.body).colorScheme || document.documentElement.dataset.theme")
        != ""
    )
    dark = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    page.get_by_label("Language").select_option("ko")
    expect(page.get_by_role("heading", name="직접 해 보기")).to_be_visible()
    assert page.locator("html").get_attribute("lang") == "ko"
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == dark
    page.get_by_label("색").select_option("light")
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") != dark
    page.get_by_label("언어").select_option("en")
    expect(page.get_by_role("heading", name="Try it")).to_be_visible()


def test_a_browser_that_keeps_nothing_has_the_page_all_the_same(stage, chromium):
    context = chromium.new_context(locale="en-US")
    context.add_init_script(
        "for (const area of ['localStorage', 'sessionStorage'])"
        " Object.defineProperty(window, area, { get() { throw new DOMException('denied', 'SecurityError'); } });"
    )
    page = context.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(stage.url)
    expect(page.locator("#header .state")).to_have_text("live")
    page.get_by_label("Colours").select_option("dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert errors == []
    context.close()
