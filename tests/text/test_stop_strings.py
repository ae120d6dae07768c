"""Stop strings end a text where a reader of single characters would, however it was cut."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st

from everystep.text import StopStrings

letters = st.sampled_from("ab")
chunks_of_text = st.lists(st.text(letters, max_size=5), max_size=12)
stop_sets = st.lists(st.text(letters, min_size=1, max_size=6), min_size=1, max_size=4, unique=True).map(tuple)


def read(stops: tuple[str, ...], chunks: Sequence[str], *, is_included: bool = False) -> tuple[str, str | None]:
    """All that is shown, and the stop string."""
    reader = StopStrings(stops, is_included=is_included)
    deltas = [reader.push(chunk) for chunk in chunks]
    stop = next((delta.stop for delta in deltas if delta.stop), None)
    return "".join(delta.text for delta in deltas) + reader.flush(), stop


def end_plainly(stops: tuple[str, ...], text: str) -> tuple[str, str | None]:
    """Every end is tried, the nearest first; of the stop strings that end there, the longest."""
    for end in range(1, len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            longest = max(ended, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(stops=stop_sets, chunks=chunks_of_text)
@example(stops=("abab",), chunks=["ab", "aab", "ab"])
@example(stops=("aab", "ab"), chunks=["aaab"])
@settings(max_examples=500, deadline=None)
def test_a_text_ends_where_the_first_stop_string_is_complete(stops: tuple[str, ...], chunks: list[str]) -> None:
    assert read(stops, chunks) == end_plainly(stops, "".join(chunks))


@given(stops=stop_sets, chunks=chunks_of_text)
@settings(max_examples=300, deadline=None)
def test_just_what_could_become_a_stop_string_is_held(stops: tuple[str, ...], chunks: list[str]) -> None:
    reader, text, shown = StopStrings(stops), "", ""
    for chunk in chunks:
        delta = reader.push(chunk)
        text, shown = text + chunk, shown + delta.text
        if delta.stop is not None:
            return
        ends = [text[at:] for at in range(len(text) + 1)]
        held = next(end for end in ends if any(stop.startswith(end) and stop != end for stop in stops))
        assert text == shown + held


@given(stops=stop_sets, chunks=chunks_of_text, num_unarmed=st.integers(0, 12))
@settings(max_examples=300, deadline=None)
def test_no_stop_string_ends_before_it_is_armed_but_one_may_begin(
    stops: tuple[str, ...], chunks: list[str], num_unarmed: int
) -> None:
    reader = StopStrings(stops)
    deltas = [reader.push(chunk, is_armed=i >= num_unarmed) for i, chunk in enumerate(chunks)]
    shown = "".join(delta.text for delta in deltas) + reader.flush()

    text, num_early = "".join(chunks), sum(map(len, chunks[:num_unarmed]))
    ends = range(num_early + 1, len(text) + 1)
    found = [(end, stop) for end in ends for stop in sorted(stops, key=len, reverse=True) if text[:end].endswith(stop)]
    expected = text[: found[0][0] - len(found[0][1])] if found else text
    assert shown == expected
    assert [delta.stop for delta in deltas if delta.stop] == ([found[0][1]] if found else [])


def test_an_ignored_early_end_still_lets_the_next_one_stop() -> None:
    reader = StopStrings(("\n\n",))

    assert reader.push("a\n\n", is_armed=False).text == "a\n"  # the second newline may begin the next
    assert reader.push("b\n\nc").text == "\nb"
    assert reader.push("more").text == reader.flush() == ""


def test_the_first_half_of_a_stop_string_never_leaks_and_comes_out_at_the_end() -> None:
    reader = StopStrings(("</answer>",))

    assert [reader.push(chunk).text for chunk in ("42</", "answ", "er")] == ["42", "", ""]
    assert reader.flush() == "</answer"


def test_a_stop_string_may_be_included() -> None:
    assert read(("END", "ND"), ["x E", "ND y"], is_included=True) == ("x END", "END")


def test_stop_strings_may_be_of_any_writing() -> None:
    assert read(("👩‍👧", "끝"), ["가족 👩", "‍", "👧 끝"]) == ("가족 ", "👩‍👧")


def test_without_stop_strings_all_text_passes_at_once() -> None:
    reader = StopStrings(())

    assert reader.push("abc").text == "abc"
    assert reader.flush() == ""


def test_a_stop_string_that_repeats_itself_doesnt_cost_more_for_being_long() -> None:
    """Ten thousand characters against forty thousand: with a naive comparison 400 million steps."""
    stop = "a" * 10_000 + "b"

    shown, found = read((stop,), ["a" * 4] * 10_000)

    assert (len(shown), found) == (40_000, None)
