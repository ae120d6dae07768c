"""From parameters to a running generation: ids, lane, priority, and the engine's door.

Owns how a request of any endpoint is put to the engine.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi.requests import Request

from everystep.api.prompts import Prompt
from everystep.api.request_scope import name_generation
from everystep.engine.client import EngineClient, Generation
from everystep.messages import GenerationRequest
from everystep.sampling_params import SamplingParams


def submit(
    engine: EngineClient,
    request: Request,
    prompts: Sequence[Prompt],
    params: SamplingParams,
    *,
    policy: str,
    priority: int = 0,
    prefix: str,
) -> Generation:
    """Raises the typed error of whatever speaks against it.  Its id begins with ``prefix``."""
    return engine.submit(
        GenerationRequest(
            request_id=name_generation(request.scope, prefix),
            prompts=tuple(prompt.ids for prompt in prompts),
            params=params,
            policy=policy,
            priority=priority,
        )
    )
