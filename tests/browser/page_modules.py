"""Modules of the page that need nothing of it, called from a test: their text runs in an empty page.

Owns putting them together.  They may import one another, and nothing that draws.
"""

from __future__ import annotations

import json
from typing import Any

from everystep.api.page.bundle import bundle
from everystep.api.page.document import HERE, modules_of


def call(page: Any, module: str, expression: str, *arguments: object) -> Any:
    """What ``expression`` gives, a function of ``arguments`` in which the module's names are known."""
    source = bundle(modules_of(HERE), module)
    given = ", ".join(json.dumps(argument) for argument in arguments)
    return page.evaluate(f"() => {{ {source}\n return ({expression})({given}); }}")
