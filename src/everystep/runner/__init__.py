"""Forward passes: a plan in, one token a row out.

Owns models, KV cache tensors, kernels and sampling.  Ignorant of lines, seats and clients.
"""

from __future__ import annotations

import sys

# Importing OpenVINO sends an event to its makers, from a forked child, unless its telemetry package is absent.  A
# server tells nobody that it was started: with ``None`` here that package counts as absent in this process.
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
