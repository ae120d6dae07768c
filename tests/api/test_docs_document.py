"""``/docs`` is one document that fetches nothing from elsewhere, and asks a browser without the key for it."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

import pytest

from api.harness import Server, serving

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def policy_of(words: str) -> dict[str, list[str]]:
    parts = [part.split() for part in words.split(";")]
    return {name: values for name, *values in parts}


async def test_the_page_is_answered_where_no_key_is_set(server: Server) -> None:
    reply = await server.http.get("/docs", headers=BROWSER)
    assert (reply.status_code, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "SwaggerUIBundle" in reply.text


async def test_a_browser_without_the_key_gets_the_page_that_asks_and_a_program_its_error() -> None:
    async with serving(api_key=("right",)) as server:
        asked = await server.http.get("/docs", headers=BROWSER)
        assert (asked.status_code, asked.headers["content-type"]) == (401, "text/html; charset=utf-8")
        let_in = await server.http.get("/docs", headers={**BROWSER, "authorization": "Bearer right"})
        assert (let_in.status_code, let_in.content) == (200, asked.content)
        program = await server.http.get("/docs", headers={"accept": "*/*"})
        assert (program.status_code, program.json()["error"]["type"]) == (401, "authentication_failed")
        described = await server.http.get("/openapi.json", headers=BROWSER)
        assert described.status_code == 401


async def test_every_script_and_style_of_the_page_is_allowed_by_its_digest_and_no_other(server: Server) -> None:
    reply = await server.http.get("/docs")
    policy = policy_of(reply.headers["content-security-policy"])
    assert policy["default-src"] == ["'none'"]
    for tag, name in (("script", "script-src"), ("style", "style-src")):
        assert "<!--" not in reply.text.partition("<style>")[2]  # it would change where a script ends
        bodies = re.findall(rf"<{tag}(?: [^>]*)?>(.*?)</{tag}>", reply.text, re.DOTALL)
        assert len(bodies) == 2
        digests = {base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() for body in bodies}
        assert set(policy[name]) == {f"'sha256-{digest}'" for digest in digests}


async def test_the_page_may_ask_no_host_but_its_own(server: Server) -> None:
    policy = policy_of((await server.http.get("/docs")).headers["content-security-policy"])
    assert policy["connect-src"] == ["'self'"]
    assert set(policy["img-src"]) <= {"'self'", "data:", "blob:"}
    assert all(policy[name] == ["'none'"] for name in ("base-uri", "form-action", "frame-ancestors"))
    allowed = {value for values in policy.values() for value in values}
    assert not {value for value in allowed if "unsafe" in value or value == "*" or value.startswith("http")}


async def test_nothing_in_the_page_s_markup_or_styles_is_fetched(server: Server) -> None:
    """The policy would refuse it; a person would see an error in the console."""
    text = (await server.http.get("/docs")).text
    frame = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", text, flags=re.DOTALL)
    links = re.findall(r"(?:src|href)=[\"']?([^\"'>\s]+)", frame)
    assert [link for link in links if not link.startswith("data:")] == []
    styles = "".join(re.findall(r"<style>(.*?)</style>", text, re.DOTALL))
    assert "@import" not in styles
    addresses = re.findall(r"url\(\s*[\"']?([^\"')]{0,8})", styles)
    assert addresses
    assert {address[:5] for address in addresses} == {"data:"}


@pytest.mark.parametrize("setting", ["validatorUrl: null", "showMutatedRequest: false"])
async def test_the_page_turns_off_what_would_tell_others(server: Server, setting: str) -> None:
    """Swagger UI's defaults: its makers' validator is asked about a public description, and the key is shown."""
    assert setting in (await server.http.get("/docs")).text


async def test_each_library_in_the_page_comes_with_its_licence() -> None:
    vendor = files("everystep.api.docs_page") / "vendor"
    names = {entry.name for entry in vendor.iterdir()}
    assert {"swagger-ui.LICENSE", "swagger-ui.NOTICE", "swagger-ui-bundle.LICENSES"} <= names
    assert "Apache License" in (vendor / "swagger-ui.LICENSE").read_text(encoding="utf-8")
    assert sum(len((vendor / name).read_bytes()) for name in names) < 2_000_000
