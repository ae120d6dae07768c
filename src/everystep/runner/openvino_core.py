"""OpenVINO's core: one for the process, never given back.

Owns that there is one.  The CPU plugin, which belongs to a core, puts a signal stack of its own into the thread that
first compiles, and at its end puts back the one that it found: with two cores, of which the first to come is the first
to go, the thread is left with a stack that is freed.  Python's handler of Ctrl-C would run on it, and the process die.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a torch runner on a GPU shares files with the one for CPUs and may lack the library
    import openvino as ov

_making = threading.Lock()


def openvino_core() -> ov.Core:
    """The process's core.  What it compiles is freed with whoever holds that."""
    with _making:
        return _core()


@functools.cache
def _core() -> ov.Core:
    import openvino as ov

    return ov.Core()
