"""Packing: what goes in comes out, whatever the steps hold."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from everystep.observe.step_pack import RawStep, pack, read, unpack
from observe.made_steps import output, row, waiting

names = st.text(min_size=1, max_size=8)
rows = st.lists(
    st.builds(
        row,
        st.integers(0, 300),
        names,
        phase=st.sampled_from(["prefill", "decode", "held"]),
        new=st.integers(0, 4000),
        context=st.integers(0, 200_000),
        finish=st.sampled_from([None, "stop", "length"]),
    ),
    max_size=6,
)


@st.composite
def lines(draw: st.DrawFn) -> list[list[object]]:
    line = draw(
        st.lists(st.builds(waiting, names, st.sampled_from(["no_seat", "behind"]), st.floats(0, 1e6)), max_size=6)
    )
    for one in line:
        one[4] = draw(st.none() | names | st.integers(0, len(line) - 1))
    return line


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(rows, lines(), st.booleans()), min_size=1, max_size=8), st.integers(-1, 30))
def test_packed_steps_come_back_as_they_went_in(parts: list[tuple[list, list, bool]], since: int) -> None:
    raw_steps: list[RawStep] = []
    for number, (some_rows, line, shares) in enumerate(parts):
        made = output(3 * number, rows=some_rows, line=line)
        assert made.waiting is not None
        told = raw_steps[-1].waiting if shares and raw_steps else made.waiting
        raw_steps.append(RawStep(3 * number, made.record, told))
    expected = [read(raw) for raw in raw_steps if raw.step > since]
    assert list(unpack(pack(raw_steps), since)) == expected


def test_who_goes_first_is_named_by_id_wherever_it_stands() -> None:
    line = [waiting("a", "no_blocks"), waiting("b", "behind", behind=0), waiting("c", "behind", behind="elsewhere")]
    step = read(RawStep(0, output(0).record, msgspec.msgpack.encode(line)))
    assert [one.behind for one in step.waiting] == [None, "a", "elsewhere"]
