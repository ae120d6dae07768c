"""The ``tokenizers`` library's objects for one model: one that parses control tokens, two that read them as text.

Owns their construction and which tokens are control tokens.  The vocabulary, which is nearly all of their memory, is
one object that all share.  Ignorant of chats and prompts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from everystep.architecture import TokenizerData
from everystep.errors import InvalidParameter, ModelError
from everystep.text.backend_part import build_part

LONG_TEXT_CHARS = 1000


@dataclass(frozen=True, slots=True)
class Backends:
    """``literal`` reads text that begins a prompt, ``literal_inner`` text behind a control token."""

    parsing: Backend
    literal: Backend
    literal_inner: Backend
    added: Mapping[int, AddedToken]
    control_ids: frozenset[int]
    unknown_id: int | None  # what stands for characters without a token: no control, though often marked so

    def encode_literal(self, text: str, *, is_inner: bool) -> list[int]:
        """Ids of ``text`` of which none is a control token's."""
        backend = self.literal_inner if is_inner else self.literal
        ids = encode_ids(backend, text)
        forbidden = self.control_ids - {self.unknown_id}
        if forbidden.isdisjoint(ids):
            return ids
        # A unigram model, or one that looks words up whole, finds a control token's text in its vocabulary.
        encoding = backend.encode(text, add_special_tokens=False)
        pairs = zip(encoding.ids, encoding.offsets, strict=True)
        cuts = [begin + 1 for token_id, (begin, _) in pairs if token_id in forbidden]
        if cuts[-1] >= len(text) == 1:
            raise InvalidParameter(f"the text {text!r} has no tokens but a control token", param="messages")
        parts = [text[begin:end] for begin, end in pairwise([0, *cuts, len(text)]) if begin < end]
        return [i for n, part in enumerate(parts) for i in self.encode_literal(part, is_inner=is_inner or n > 0)]


def encode_ids(backend: Backend, text: str, *, add_special_tokens: bool = False) -> list[int]:
    """The plain call keeps Python's lock, and a megabyte takes seconds; the call for batches lets others run."""
    if len(text) < LONG_TEXT_CHARS:
        ids: list[int] = backend.encode(text, add_special_tokens=add_special_tokens).ids
    else:
        ids = backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids
    return ids


def build_backends(data: TokenizerData) -> Backends:
    """Raises :class:`ModelError` if the data is no tokenizer."""
    parsing = _build(data.tokenizer_json)
    _mark_control_tokens(parsing, data)
    added = parsing.get_added_tokens_decoder()
    literal = _literal_twin(parsing, added, parsing.pre_tokenizer)
    inner_steps = _without_first_space(parsing.pre_tokenizer)
    literal_inner = literal if inner_steps is None else _literal_twin(parsing, added, inner_steps)
    unknown = getattr(parsing.model, "unk_token", None) or data.unk_token
    is_lossless = getattr(parsing.model, "unk_token", unknown) is None  # a model that never says "unknown"
    return Backends(
        parsing=parsing,
        literal=literal,
        literal_inner=literal_inner,
        added=added,
        control_ids=frozenset(i for i, token in added.items() if token.special),
        unknown_id=None if unknown is None or is_lossless else parsing.token_to_id(unknown),
    )


def _build(tokenizer_json: str) -> Backend:
    try:
        backend = Backend.from_str(tokenizer_json)
    except Exception as error:  # the library raises bare Exception
        raise ModelError(f"the tokenizer can't be built: {error}") from error
    backend.no_truncation()  # a prompt is never cut in silence, whatever the file says
    backend.no_padding()
    return backend


def _mark_control_tokens(backend: Backend, data: TokenizerData) -> None:
    """Tokens that begin or end a text are control tokens, also where the file forgot to say so."""
    named = [name for name in (data.bos_token, data.eos_token, data.pad_token) if name]
    known = [name for name in named if backend.token_to_id(name) is not None]
    added = backend.get_added_tokens_decoder()
    ends = [added[i].content for i in data.eos_token_ids if i in added]
    special = {token.content for token in added.values() if token.special}
    missing = [name for name in dict.fromkeys([*known, *ends]) if name not in special]
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in missing])


def _literal_twin(parsing: Backend, added: Mapping[int, AddedToken], pre_tokenizer: Any) -> Backend:
    """A backend on the same vocabulary to which control tokens are text.  Other added tokens it parses as well."""
    twin = Backend(parsing.model)
    if parsing.normalizer is not None:
        twin.normalizer = parsing.normalizer
    if pre_tokenizer is not None:
        twin.pre_tokenizer = pre_tokenizer
    twin.add_tokens([added[i] for i in sorted(added)])  # in the order of ids, which it counts out anew
    twin.add_special_tokens([added[i] for i in sorted(added) if added[i].special])
    twin.encode_special_tokens = True  # the library's name for "as text"
    moved = [token.content for i, token in added.items() if twin.token_to_id(token.content) != i]
    if moved:
        raise ModelError(f"the tokenizer's added token {moved[0]!r} has an id out of order")
    return twin


def _without_first_space(pre_tokenizer: Any) -> Any:
    """The pre-tokenizer for text that doesn't begin the prompt; ``None`` where it is the same.

    Metaspace with ``prepend_scheme="first"`` puts a space before the prompt's first word only, and knows that word by
    its place in the text that it is handed.
    """
    state = b"" if pre_tokenizer is None else pre_tokenizer.__getstate__()
    if b'"prepend_scheme":"first"' not in state:
        return None
    inner = json.loads(state.replace(b'"prepend_scheme":"first"', b'"prepend_scheme":"never"'))
    return build_part("pre_tokenizer", inner)
