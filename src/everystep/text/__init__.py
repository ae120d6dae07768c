"""Text in, token ids; token ids, text out.

Owns tokenising, chat templates, incremental detokenising and stop strings.  Ignorant of models and schedules.
"""

from everystep.text.chat_messages import ChatMessage, flatten_content
from everystep.text.detokenizer import Detokenizer
from everystep.text.stop_strings import StopStrings, TextDelta
from everystep.text.text_output import TextOutput
from everystep.text.tokenizer import Tokenizer, truncate_prompt

__all__ = [
    "ChatMessage",
    "Detokenizer",
    "StopStrings",
    "TextDelta",
    "TextOutput",
    "Tokenizer",
    "flatten_content",
    "truncate_prompt",
]
