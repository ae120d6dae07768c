"""Several files of JavaScript as one script, so that a page is one document and asks its server for nothing more.

Owns the order, and the few forms that a module may have for it: ``import { a, b } from "./file.js";`` and ``export``
before a declaration of one name, each at the beginning of a line.  All files share one scope then, so no two may
declare the same name.  It is no compiler: what it doesn't know it refuses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([a-z_]+)\.js";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const|let)\b)", re.MULTILINE)
EXPORTED = re.compile(r"^export (?:async )?(?:function\*?|class|const|let) (\w+)", re.MULTILINE)
DECLARED = re.compile(r"^(?:export )?(?:async )?(?:function\*?|class|const|let|var) (\w+)", re.MULTILINE)
LEFT_OVER = re.compile(r"^(?:(?:import|export)\b|(?:const|let|var) [^\w$]).*", re.MULTILINE)


def bundle(sources: Mapping[str, str], entry: str) -> str:
    """The script of module ``entry`` with all that it imports, each once, after what it imports itself.

    ``sources`` are by name, without ``.js``.  Raises ``ValueError`` that names the file and what is wrong with it.
    """
    if entry not in sources:
        raise ValueError(f"{entry}.js isn't there")
    order: list[str] = []
    _visit(sources, entry, order, ())
    _check_names(sources, order)
    return "\n".join(f"// --- {name}.js\n{_stripped(name, sources[name])}" for name in order)


def _visit(sources: Mapping[str, str], name: str, order: list[str], above: tuple[str, ...]) -> None:
    if name in above:
        raise ValueError(f"{name}.js imports itself, by way of {' and '.join(above[above.index(name) :])}")
    if name in order:
        return
    for names, other in IMPORT.findall(sources[name]):
        if other not in sources:
            raise ValueError(f"{name}.js imports {other}.js, which isn't there")
        wanted = {word.strip() for word in names.split(",") if word.strip()}
        if unknown := wanted - set(EXPORTED.findall(sources[other])):
            raise ValueError(f"{name}.js imports {', '.join(sorted(unknown))}, which {other}.js doesn't export")
        _visit(sources, other, order, (*above, name))
    order.append(name)


def _check_names(sources: Mapping[str, str], order: list[str]) -> None:
    owners: dict[str, str] = {}
    for name in order:
        for declared in DECLARED.findall(sources[name]):
            if declared in owners:
                raise ValueError(f"{declared} is declared by {owners[declared]}.js and by {name}.js")
            owners[declared] = name


def _stripped(name: str, source: str) -> str:
    plain = EXPORT.sub("", IMPORT.sub("", source))
    if left := LEFT_OVER.search(plain):
        raise ValueError(f"{name}.js has a form that isn't known here: {left.group()}")
    return plain
