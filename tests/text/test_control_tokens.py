"""Control tokens are found as a plain search finds them, however many a model has."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from everystep.text.control_tokens import ControlTokens

NO_MARK = "\ue000"
letters = st.sampled_from("ab<|")
some_controls = st.sets(st.text(letters, min_size=1, max_size=5), max_size=7)


def controls_of(contents: set[str]) -> ControlTokens:
    return ControlTokens({i: AddedToken(content, special=True) for i, content in enumerate(sorted(contents))})


def cut_plainly(contents: set[str], text: str) -> list[str]:
    """At each place the longest control token that begins there; else one more character of plain text."""
    pieces, plain, at = [], "", 0
    while at < len(text):
        here = max((content for content in contents if text.startswith(content, at)), key=len, default="")
        if here:
            pieces += [plain, here] if plain else [here]
            plain = ""
        plain += "" if here else text[at]
        at += len(here) or 1
    return pieces + [plain] * bool(plain)


@given(contents=some_controls, text=st.text(letters, max_size=30))
@settings(max_examples=300, deadline=None)
def test_a_text_is_cut_at_the_longest_control_tokens(contents: set[str], text: str) -> None:
    segments = list(controls_of(contents).cut(text, NO_MARK))

    assert [segment.text for segment in segments] == cut_plainly(contents, text)
    assert [segment.text for segment in segments if segment.control_id is not None] == [
        piece for piece in cut_plainly(contents, text) if piece in contents
    ]


@given(contents=some_controls, text=st.text(letters, max_size=30))
@settings(max_examples=300, deadline=None)
def test_a_marked_text_holds_no_control_token_of_two_characters_or_more(contents: set[str], text: str) -> None:
    contents = {content for content in contents if len(content) > 1}
    places = sorted(controls_of(contents).breaks(text))

    marked = "".join(NO_MARK + char if i in places else char for i, char in enumerate(text))

    assert not any(content in marked for content in contents)
