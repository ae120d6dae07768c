"""Whether a model computes numbers at all: asked once, before anybody is served.

Owns the question and its words.  Damaged weights of the right size give NaN, which would fail each request alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from everystep.errors import ModelError
from everystep.types import StepResult

WORDS = "its weights are damaged, or too large for this precision"


def check_finite(logits: npt.NDArray[np.float32]) -> None:
    """Raise :class:`ModelError` for ``[rows, vocab]`` of which one isn't a finite number."""
    if not np.isfinite(logits).all():
        raise ModelError(f"the model computes no finite logits: {WORDS}")


def check_drawn(result: StepResult) -> None:
    """As :func:`check_finite`, where the logits stay on a device: raise if a row of a warm-up couldn't be drawn."""
    for words in result.errors.values():
        raise ModelError(f"the model can't be drawn from ({words}): {WORDS}")
