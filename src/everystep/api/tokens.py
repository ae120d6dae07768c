"""``/tokenize`` and ``/detokenize``: the model's tokenizer, as clients may need it to count.

Owns their replies.  Raw prompts: control tokens in the text are parsed, as ``/generate`` and ``/v1/completions`` do.
"""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from everystep.api.json_bodies import JsonRoute, json_reply
from everystep.api.native_bodies import DetokenizeBody, DetokenizeReply, TokenizeBody, TokenizeReply
from everystep.api.off_loop import off_loop_if_long
from everystep.api.prompts import check_ids, read_texts
from everystep.engine.client import EngineClient
from everystep.errors import InvalidParameter


def router(engine: EngineClient) -> APIRouter:
    """Both routes, for one engine."""
    routes = APIRouter(route_class=JsonRoute, tags=["tokenizer"])

    @routes.post("/tokenize", response_model=TokenizeReply, summary="Text to token ids")
    async def tokenize(body: TokenizeBody) -> Response:
        ids = (await read_texts(engine, [body.prompt]))[0].ids
        return json_reply({"tokens": ids, "count": len(ids), "max_model_len": engine.max_model_len})

    @routes.post("/detokenize", response_model=DetokenizeReply, summary="Token ids to text")
    async def detokenize(body: DetokenizeBody) -> Response:
        if len(body.tokens) > engine.max_model_len:
            limit = engine.max_model_len
            raise InvalidParameter(f"tokens holds {len(body.tokens)} ids; the context holds {limit}", param="tokens")
        tokenizer = engine.tokenizer
        check_ids(body.tokens, tokenizer.vocab_size, "tokens")
        text = await off_loop_if_long(len(body.tokens), lambda: tokenizer.decode(body.tokens, skip_special=False))
        return json_reply({"prompt": text})

    return routes
