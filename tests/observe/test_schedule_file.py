"""The file of a recorded schedule: what is written can be read, what was cut is read as far as it goes."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from everystep.errors import ConfigError
from everystep.messages import Abort, StepOutput, StepSummary, Submit
from everystep.observe.schedule import (
    SCHEMA,
    Aborted,
    End,
    Header,
    HeldRow,
    Idled,
    Planned,
    PlannedRow,
    Refused,
    Stepped,
    Submitted,
    Token,
)
from everystep.observe.schedule_reader import Turn, read_schedule
from everystep.observe.schedule_writer import ScheduleWriter
from everystep.sampling_params import SamplingParams
from everystep.types import FinishReason, Row, SampledToken, Sequence, StepPlan, TokenEvent

HEADER = Header(
    schema=SCHEMA,
    everystep="0",
    settings={"max_num_seqs": 4},
    content_key="abc",
    runner="fake",
    precision="none",
    num_threads=1,
    cpu="a processor",
    block_size=4,
    num_blocks=8,
    max_model_len=32,
    vocab_size=50,
    seats={"continuous": 4},
    first_step=7,
)
PARAMS = SamplingParams(max_tokens=20, temperature=0.5, stop=("the",), logit_bias={3: -1.5}, stop_token_ids=(9,))


def submit(name: str, params: SamplingParams = PARAMS) -> Submit:
    return Submit(name, "request", "continuous", (1, 2), params, 2**64 - 1, (0,), -1, 0.1 + 0.2)


def sequence(name: str, n: int) -> Sequence:
    return Sequence(name, name, "continuous", [1, 2], 2, PARAMS, 0, frozenset(), arrival_index=n)


def output(*events: TokenEvent, preempted: tuple[str, ...] = ()) -> StepOutput:
    summary = StepSummary(7, "continuous", 1.0, 2.5, 1, 0, 3, 2, 0, 0, 0, 1, 8)
    return StepOutput(summary, b"", None, preempted=preempted, events=events)


def write_one_of_each(path: Path) -> None:
    writer = ScheduleWriter(path, HEADER)
    writer.submitted(submit("a"), 0.5)
    writer.submitted(submit("b"), 0.6)
    writer.refused(submit("b"), "too long")
    writer.idled(0.7)
    plan = StepPlan("continuous", (Row(sequence("a", 0), 3, 0, 2),), (Row(sequence("b", 1), 1, 5, 0),))
    writer.planned(7, 1.0, plan, 2)
    writer.submitted(submit("c"), 1.1)
    writer.aborted(Abort("nobody", FinishReason.ABORTED), 1.2, False)
    end = TokenEvent("a", SampledToken(9, -0.5), FinishReason.STOP)
    writer.stepped(output(end, preempted=("c",)), "static")
    writer.aborted(Abort("c", FinishReason.TIMEOUT), 3.0, True)
    writer.close()


def submitted(n: int, name: str, at_s: float) -> Submitted:
    params = {"max_tokens": 20, "temperature": 0.5, "stop": ["the"], "logit_bias": {"3": -1.5}, "stop_token_ids": [9]}
    return Submitted(n, at_s, 0.1 + 0.2, name, "request", "continuous", (1, 2), params, 2**64 - 1, (0,), -1)


def test_what_was_written_is_read_turn_by_turn(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write_one_of_each(path)
    assert list(read_schedule(path)) == [
        HEADER,
        Turn((submitted(0, "a", 0.5), submitted(1, "b", 0.6), Refused(1, "too long")), Idled(0.7), line_number=5),
        Turn(
            ran=Planned(7, 1.0, "continuous", (PlannedRow(0, 3, 0, 2),), 2, (HeldRow(1, 1),)),
            during=(submitted(2, "c", 1.1), Aborted(1.2, "nobody", FinishReason.ABORTED, False)),
            result=Stepped(2.5, (Token(0, 9),), (End(0, FinishReason.STOP),), ("c",), "static"),
            line_number=6,
        ),
        Turn((Aborted(3.0, "c", FinishReason.TIMEOUT, True),), line_number=10),
    ]


def test_a_submit_comes_back_as_it_was_to_the_last_bit_of_its_time_and_seed(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write_one_of_each(path)
    turn = list(read_schedule(path))[1]
    assert isinstance(turn, Turn)
    line = turn.before[0]
    assert isinstance(line, Submitted)
    assert line.message() == submit("a")


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    write_one_of_each(tmp_path / "s.jsonl")
    assert stat.S_IMODE(os.stat(tmp_path / "s.jsonl").st_mode) == 0o600


def test_each_line_is_there_before_the_next_is_made(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    writer = ScheduleWriter(path, HEADER)
    for num_lines in (2, 3, 4):
        writer.idled(float(num_lines))
        assert len(path.read_text().splitlines()) == num_lines
    writer.close()


def test_a_second_core_appends_behind_the_first_even_behind_a_line_that_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write_one_of_each(path)
    path.write_bytes(path.read_bytes()[:-5])
    write_one_of_each(path)
    items = list(read_schedule(path))
    assert [isinstance(item, Header) for item in items] == [True, False, False, True, False, False, False]
    assert items[4:] != items[1:3]
    assert [item.ran for item in items[4:6] if isinstance(item, Turn)] == [
        item.ran for item in items[1:3] if isinstance(item, Turn)
    ]


@pytest.mark.parametrize("num_bytes", range(2, 200, 7))
def test_wherever_a_file_is_cut_all_whole_lines_before_the_cut_count(tmp_path: Path, num_bytes: int) -> None:
    path = tmp_path / "s.jsonl"
    write_one_of_each(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-num_bytes])
    num_lines = whole[:-num_bytes].count(b"\n")
    last = list(read_schedule(path))[-1]
    assert isinstance(last, Turn)
    assert last.line_number <= num_lines
    assert (last.result is None) == (num_lines != 9)


def test_a_pass_that_never_ended_has_its_plan_and_no_result(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write_one_of_each(path)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:7]))
    last = list(read_schedule(path))[-1]
    assert isinstance(last, Turn)
    assert isinstance(last.ran, Planned)
    assert len(last.during) == 1
    assert last.result is None


@pytest.mark.parametrize(
    ("line", "changed", "words"),
    [
        (1, {"schema": 99}, "line 1: is of schema 99; this everystep reads schema 1"),
        (2, {"n": 4}, "line 2: submits number 4, but the next is 0"),
        (2, {"params": {"max_tokens": -1}}, "line 2: has parameters that can't be: max_tokens=-1 must be an integer"),
        (2, {"params": {"n": 0}}, "line 2: has parameters that can't be: n=0 must be an integer"),
        (6, {"rows": [[5, 0, 0, 1]]}, "line 6: has a row of number 5, but 2 were submitted"),
        (6, {"line": "idle"}, "line 9: is a step without a plan"),
        (5, {"line": "plan", "step": 1, "lane": "x", "rows": [], "blocks": 0}, "line 6: plans while step 1 is open"),
        (4, {"line": "nap"}, "line 4: "),
        (4, {"error": 5}, "line 4: "),
    ],
)
def test_a_line_that_nobody_can_have_written_is_named(
    tmp_path: Path, line: int, changed: dict[str, object], words: str
) -> None:
    path = tmp_path / "s.jsonl"
    write_one_of_each(path)
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    lines[line - 1] |= changed
    path.write_text("".join(json.dumps(entry) + "\n" for entry in lines))
    with pytest.raises(ConfigError, match=words):
        list(read_schedule(path))


def test_a_file_of_another_kind_isnt_appended_to_nor_read(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary\n")
    with pytest.raises(ConfigError, match="is a file of another kind"):
        ScheduleWriter(path, HEADER)
    assert path.read_text() == "dear diary\n"
    with pytest.raises(ConfigError, match=r"notes\.txt, line 1: is no line of a recording"):
        list(read_schedule(path))


def test_a_file_that_cant_be_opened_is_said_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be written: No such file or directory"):
        ScheduleWriter(tmp_path / "nowhere" / "s.jsonl", HEADER)
    with pytest.raises(ConfigError, match="can't be written: Is a directory"):
        ScheduleWriter(tmp_path, HEADER)
    with pytest.raises(ConfigError, match="can't be read: No such file or directory"):
        list(read_schedule(tmp_path / "absent.jsonl"))
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(ConfigError, match="is empty"):
        list(read_schedule(tmp_path / "empty.jsonl"))


def test_a_disk_that_is_full_ends_the_recording_and_not_the_core(caplog: pytest.LogCaptureFixture) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    writer = ScheduleWriter.__new__(ScheduleWriter)
    writer._path, writer._num_submitted, writer._numbers = Path("/dev/full"), 0, {}
    writer._descriptor = os.open("/dev/full", os.O_WRONLY)
    writer.idled(0.0)
    writer.idled(1.0)
    assert [record.message for record in caplog.records] == [
        "/dev/full can't be written any more, the recording ends: No space left on device"
    ]
