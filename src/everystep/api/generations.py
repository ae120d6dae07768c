"""From parameters to a running generation: ids, lane, priority, deadline, and the engine's door.

Owns how a request of any endpoint is put to the engine, and the log of prompts where somebody asked for one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from fastapi.requests import Request

from everystep.api.prompts import Prompt
from everystep.api.request_scope import GENERATION, name_generation
from everystep.engine.client import EngineClient, Generation
from everystep.messages import GenerationRequest
from everystep.sampling_params import SamplingParams

logger = logging.getLogger(__name__)

MAX_LOGGED_CHARS = 2_000  # of a prompt


@dataclass(frozen=True, slots=True)
class Ours:
    """What no model knows of: how a request is scheduled here."""

    policy: str
    priority: int = 0
    timeout_s: float | None = None


def submit(
    engine: EngineClient,
    request: Request,
    prompts: Sequence[Prompt],
    params: SamplingParams,
    ours: Ours,
    *,
    prefix: str,
    max_tokens: tuple[int, ...] | None = None,
) -> Generation:
    """Raises the typed error of whatever speaks against it.  Its id begins with ``prefix``.

    ``max_tokens``, one number a prompt, stands in the place of that of ``params``.

    However the handling of the HTTP request ends, the generation is over then: the request's scope holds it.
    """
    generation = engine.submit(
        GenerationRequest(
            request_id=name_generation(request.scope, prefix),
            prompts=tuple(prompt.ids for prompt in prompts),
            params=params,
            policy=ours.policy,
            priority=ours.priority,
            timeout_s=ours.timeout_s,
            max_tokens=max_tokens,
        )
    )
    request.scope[GENERATION] = generation
    if engine.settings.log_prompts:
        _log_prompts(engine, generation.request_id, prompts)
    return generation


def _log_prompts(engine: EngineClient, request_id: str, prompts: Sequence[Prompt]) -> None:
    """Each on one line, whatever is in it; of a chat, what the template made of it."""
    for number, prompt in enumerate(prompts, start=1):
        text = prompt.text or engine.tokenizer.decode(prompt.ids[:MAX_LOGGED_CHARS], skip_special=False)
        is_cut = len(text) > MAX_LOGGED_CHARS or (not prompt.text and len(prompt.ids) > MAX_LOGGED_CHARS)
        rest = f" … cut at {MAX_LOGGED_CHARS} characters" if is_cut else ""
        where = f"{number} of {len(prompts)}, {len(prompt.ids)} tokens"
        logger.info("request %s: prompt %s: %r%s", request_id, where, text[:MAX_LOGGED_CHARS], rest)
