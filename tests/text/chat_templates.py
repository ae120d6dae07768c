"""Chat templates of the shapes that models have, written for the tests, and chats to render with them.

Owns what ``make_chat_goldens.py`` renders with transformers and ``test_chat.py`` with ours.
"""

from __future__ import annotations

from typing import Any

CONVERSATION = [
    {"role": "system", "content": "You are terse."},
    {"role": "user", "content": "What is 12 + 30?\n"},
    {"role": "assistant", "content": "  42  "},
    {"role": "user", "content": "Danke! 안녕히 가세요 🙂 <b>bold</b> & 'quotes' \"too\""},
]
CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": [2, "é<>&"]}}}
WITH_CALL = [
    {"role": "user", "content": "Add."},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "name": "add", "content": "3"},
]
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "array"}}}
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds <a> & b", "parameters": PARAMETERS}}]

HEADERS = """{{- bos_token -}}
{%- set state = namespace(count=0) -%}
{% for message in messages %}
    {% if message['content'] is none %}{% continue %}{% endif %}
    {% set state.count = state.count + 1 %}
{{ '<|im_start|>' + message['role'] + '#' ~ state.count + '\\n' }}
    {% if message.role == 'assistant' %}
{% generation %}{{ message['content'] | trim }}{{ eos_token }}{% endgeneration %}
    {% else %}
{{ message['content'].strip() }}<|im_end|>
    {% endif %}
{% endfor %}
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}
"""
WITH_TOOLS = """{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{{ tool | tojson(indent=2) }}{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{% for call in message.tool_calls or [] %}{% set function = call.function %}
{{ {"name": function.name} | tojson }} {{ function.arguments | tojson }}
{% else %}{{ message.content }}{% endfor %}<|im_end|>
{% endfor %}"""

CASES: list[dict[str, Any]] = [
    {"name": "one user message", "messages": [{"role": "user", "content": "Hi"}]},
    {"name": "a conversation", "messages": CONVERSATION},
    {"name": "an empty message", "messages": [{"role": "user", "content": ""}]},
    {"name": "nothing to be generated", "messages": CONVERSATION, "add_generation_prompt": False},
    {"name": "headers", "template": HEADERS, "messages": CONVERSATION},
    {"name": "tools", "template": WITH_TOOLS, "messages": WITH_CALL, "tools": TOOLS},
]
