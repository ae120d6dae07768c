"""A page as one document: script and style within it, and a policy under which nothing else runs or is fetched.

Owns the headers.  One document needs no key for parts of its own, so that a server that wants a key can answer with
401 and the very page that asks for it: there is nothing in it that isn't in everybody's copy of the program.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from fastapi.responses import Response

from everystep.api.page.bundle import bundle

HERE = "everystep.api.page"
MARK = "<!-- everything -->"  # where the document gets its styles and scripts


@dataclass(frozen=True, slots=True)
class Document:
    """The bytes of a page and the policy that belongs to them."""

    body: bytes
    policy: str

    def reply(self, status: int = 200) -> Response:
        """Never kept by a cache that wouldn't ask: the next version of the program has another page."""
        headers = {
            "content-security-policy": self.policy,
            "cache-control": "no-cache",
            "cross-origin-opener-policy": "same-origin",
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
        }
        return Response(self.body, status_code=status, media_type="text/html; charset=utf-8", headers=headers)


def make_document(
    html: str, *, styles: Sequence[str], scripts: Sequence[str], module: str, makes_markup: bool = False
) -> Document:
    """``html`` with the styles, the plain scripts and then the module in the place of :data:`MARK`.

    Only these run, by their digests.  Whatever is made of text stays text: the browser refuses what would read it as
    markup (trusted types), and styles come from the sheets alone.  ``makes_markup``: for a library that can't do
    without, the browser allows it; still no script runs but these.
    """
    for script in (*scripts, module):
        if "</script" in script.lower() or "<!--" in script:
            raise ValueError("a script with </script or <!-- in it ends, or hides, where it shouldn't")
    if any("</style" in style.lower() for style in styles):
        raise ValueError("a style with </style in it ends where it shouldn't")
    parts = [f"<style>{style}</style>" for style in styles]
    parts += [f"<script>{script}</script>" for script in scripts]
    parts += [f'<script type="module">{module}</script>']
    if html.count(MARK) != 1:
        raise ValueError(f"a page needs one {MARK}")
    policy = {
        "default-src": ["'none'"],
        "script-src": [_digest(script) for script in (*scripts, module)],
        "style-src": [_digest(style) for style in styles],
        "connect-src": ["'self'"],
        "img-src": ["'self'", "data:", "blob:"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
        "frame-ancestors": ["'none'"],
    }
    if not makes_markup:
        policy |= {"require-trusted-types-for": ["'script'"], "trusted-types": ["'none'"]}
    words = "; ".join(" ".join([name, *values]) for name, values in policy.items())
    return Document(html.replace(MARK, "\n".join(parts)).encode(), words)


@functools.cache
def live_page() -> Document:
    """The page of ``/``."""
    folder = files(HERE)
    styles = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".css"))
    vendor = folder / "vendor"
    return make_document(
        (folder / "index.html").read_text(encoding="utf-8"),
        styles=[
            (vendor / "uPlot.min.css").read_text(encoding="utf-8"),
            *((folder / name).read_text(encoding="utf-8") for name in styles),
        ],
        scripts=[(vendor / "uPlot.iife.min.js").read_text(encoding="utf-8")],
        module=bundle(modules_of(HERE), "main"),
    )


def modules_of(package: str) -> dict[str, str]:
    """The JavaScript modules that lie in a package, by name."""
    return {
        entry.name.removesuffix(".js"): entry.read_text(encoding="utf-8")
        for entry in files(package).iterdir()
        if entry.name.endswith(".js")
    }


def _digest(text: str) -> str:
    """As a policy names what may run (CSP Level 3, section 2.3.1)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
