"""Messages survive the wire whole, however the stream cuts them."""

import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everystep.engine.codec import FrameReader, WorkerStream, encode
from everystep.messages import Abort, EventsOnly, Shutdown, StepOutput, StepSummary, Submit, SubmitAll
from everystep.sampling_params import SamplingParams
from everystep.types import FinishReason, SampledToken, TokenEvent, TokenLogprob

SUMMARY = StepSummary(7, "static", 1.0, 1.5, 3, 1, 0, 9, 2, 0, 0, 5, 64)
PARAMS = SamplingParams(max_tokens=3, temperature=0.5, stop=("a", "é"), logit_bias={5: -1.5, 7: 2.0}, logprobs=2)
TOKEN = SampledToken(42, -0.25, (TokenLogprob(42, -0.25), TokenLogprob(7, -2.0)))
MESSAGES = [
    SubmitAll((Submit("r-0", "r", "continuous", (1, 2, 3), PARAMS, 2**64 - 1, (0, 2), -3, 12.5),)),
    Abort("r-0", FinishReason.STOP),
    Shutdown(),
    StepOutput(SUMMARY, b"\x00record", None, ("r-0",), (), (TokenEvent("r-0", TOKEN, FinishReason.LENGTH),)),
    EventsOnly((TokenEvent("r-1", finish_reason=FinishReason.FAILED, error="no"),), 3),
]


@given(st.lists(st.sampled_from(MESSAGES), max_size=8), st.integers(1, 97))
def test_messages_come_out_as_they_went_in_however_the_bytes_are_cut(messages, cut):
    stream = b"".join(map(encode, messages))
    reader = FrameReader()
    received = []
    for start in range(0, len(stream), cut):
        received += reader.feed(stream[start : start + cut])
    assert received == messages


def test_a_decoded_submit_has_checked_parameters_of_the_right_type():
    (message,) = FrameReader().feed(encode(MESSAGES[0]))
    params = message.submits[0].params
    assert isinstance(params, SamplingParams)
    assert params.logit_bias == {5: -1.5, 7: 2.0}
    assert params.stop == ("a", "é")


def test_a_frame_that_cannot_be_ours_is_refused():
    with pytest.raises(ValueError, match="bad frame"):
        FrameReader().feed(b"\xff\xff\xff\xff\x00rest")
    with pytest.raises(ValueError, match="tag 99"):
        FrameReader().feed(b"\x00\x00\x00\x01\x63x")


def test_a_large_message_passes_a_socket_smaller_than_itself():
    ours, theirs = socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    sender, receiver = WorkerStream(theirs), WorkerStream(ours)
    message = StepOutput(SUMMARY, b"x" * 1_000_000, None)
    thread = threading.Thread(target=sender.send, args=(message,))
    thread.start()
    received = []
    while not received:
        received = receiver.receive(10.0)
    thread.join()
    assert received == [message]


def test_a_closed_peer_is_an_end_of_file_and_not_an_empty_answer():
    ours, theirs = socket.socketpair()
    ours.close()
    with pytest.raises(EOFError):
        WorkerStream(theirs).receive(0.0)
