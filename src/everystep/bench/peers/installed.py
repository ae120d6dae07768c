"""Whether a Python has what a contender needs, and in which releases.

Owns the question and the line that says what is absent.  Ignorant of how a contender is started.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass

ASK_DEADLINE_S = 60.0
# Printed by the other Python: module → release ("" where none is known), or null where it isn't there.  Nothing heavy
# is imported.  A folder of that name in the working directory isn't the library: it has no origin.
ASK = """
import importlib.util, json, sys
from importlib import metadata
homes = metadata.packages_distributions()
def release(name):
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return None
    return metadata.version(homes[name][0]) if name in homes else ""
print(json.dumps({name: release(name) for name in sys.argv[1:]}))
"""


@dataclass(frozen=True, slots=True)
class Installed:
    """What one Python has.  ``missing`` is a line for people; empty where nothing is."""

    versions: dict[str, str]
    missing: str = ""


def look(python: str, modules: tuple[str, ...]) -> Installed:
    """Ask ``python`` whether it has all of ``modules``, and in which releases."""
    try:
        done = subprocess.run(
            [python, "-c", ASK, *modules], capture_output=True, text=True, timeout=ASK_DEADLINE_S, check=True
        )
        found: dict[str, str | None] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return Installed({}, f"{python} can't be asked: {type(error).__name__}")
    versions = {name: release for name, release in found.items() if release is not None}
    absent = [name for name in modules if name not in versions]
    return Installed(versions, f"{python} has no {' and no '.join(absent)}" if absent else "")
