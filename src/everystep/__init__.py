"""everystep: an LLM inference server in which a policy decides, before every step, who shares the forward pass.

Owns the public names.  Ignorant of all else: a name is imported when it is first asked for, so that
``import everystep`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from everystep.version import __version__

if TYPE_CHECKING:
    from everystep.api import create_app
    from everystep.llm import LLM
    from everystep.sampling_params import SamplingParams

__all__ = ["LLM", "SamplingParams", "__version__", "create_app"]

_HOMES = {"LLM": "everystep.llm", "SamplingParams": "everystep.sampling_params", "create_app": "everystep.api"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'everystep' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
