"""Chat messages as templates take them: content as one text, arguments of tool calls as objects.

Owns what a message may be.  Ignorant of templates and of ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from everystep.errors import InvalidParameter, UnsupportedOption

ChatMessage = Mapping[str, Any]
ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def plain_messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Raises :class:`InvalidParameter` for what is no message, :class:`UnsupportedOption` for content but text."""
    if not messages:
        raise InvalidParameter("messages must hold at least one message", param="messages")
    return [_plain(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _plain(message: ChatMessage, name: str) -> dict[str, Any]:
    role = message.get("role") if isinstance(message, Mapping) else None
    # Some templates write the role between the marks of a control token: it is no free text.
    if role not in ROLES:
        raise InvalidParameter(f"{name}.role={role!r} must be one of {', '.join(ROLES)}", param="messages")
    plain = {**message, "content": flatten_content(message.get("content"), name)}
    if message.get("tool_calls"):
        plain["tool_calls"] = [_plain_call(call, name) for call in message["tool_calls"]]
    return plain


def flatten_content(content: Any, name: str = "message") -> str:
    """A message's content as text: a string, nothing, or parts that are all text, a line each."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise InvalidParameter(f"{name}.content must be text or a list of parts, not {content!r:.60}", param="messages")
    return "\n".join(_part_text(part, name) for part in content)


def _part_text(part: Any, name: str) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind != "text":
        raise UnsupportedOption(
            f"{name}.content has a part of type {kind!r:.60}; only 'text' is supported", param="messages"
        )
    if not isinstance(part.get("text"), str):
        raise InvalidParameter(f"{name}.content has a text part without text", param="messages")
    return str(part["text"])


def _plain_call(call: Any, name: str) -> Any:
    """Clients send arguments as a JSON string; templates write the object as JSON themselves."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise InvalidParameter(f"{name}.tool_calls has a call without a function", param="messages")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError) as error:
            raise InvalidParameter(f"{name}.tool_calls has arguments that are no JSON", param="messages") from error
    return {**call, "function": {**function, "arguments": arguments}}
