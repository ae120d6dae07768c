"""The page of ``/docs`` as one document, with Swagger UI within it, so that no other host is asked for anything.

Owns which of the vendored files go in, and how.  The key is asked for, kept and sent by the live page's own code, so a
tab that was let in there is let in here.
"""

from __future__ import annotations

import functools
from importlib.resources import files

from everystep.api.page.bundle import bundle
from everystep.api.page.document import HERE as LIVE_PAGE
from everystep.api.page.document import Document, make_document, modules_of

HERE = "everystep.api.docs_page"
COMMENT = "<!--"  # as Swagger UI has it in regular expressions, which mean the same with the escape
ESCAPED = "\\x3c!--"


@functools.cache
def docs_page() -> Document:
    """The page.

    Swagger UI 5.35 shows the Markdown of descriptions as HTML (washed by the DOMPurify within it), which trusted types
    refuse; so they aren't demanded here.  What the descriptions say is this program's own text, and no script but the
    two of the page runs, whatever they say.
    """
    folder = files(HERE)
    vendor = folder / "vendor"
    return make_document(
        (folder / "index.html").read_text(encoding="utf-8"),
        styles=[
            (vendor / "swagger-ui.css").read_text(encoding="utf-8"),
            (folder / "docs.css").read_text(encoding="utf-8"),
        ],
        scripts=[(vendor / "swagger-ui-bundle.js").read_text(encoding="utf-8").replace(COMMENT, ESCAPED)],
        module=bundle(modules_of(LIVE_PAGE) | modules_of(HERE), "docs"),
        makes_markup=True,
    )
