"""Logging: lines for people or for machines, with the request's id and without anything else that is attached."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator

import pytest
import uvicorn

from everystep.observe.logs import LOGGERS, configure_logging, logging_request

logger = logging.getLogger("everystep.engine")


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    kept = [
        (logging.getLogger(name), logging.getLogger(name).handlers, logging.getLogger(name).level) for name in LOGGERS
    ]
    yield
    for one, handlers, level in kept:
        one.handlers, one.propagate = handlers, True
        one.setLevel(level)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def test_a_line_for_people_has_time_level_logger_and_message(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    logger.warning("worker ended: %s", "killed")
    [line] = lines(capsys)
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} WARNING everystep\.engine worker ended: killed", line)


def test_a_json_line_is_one_object_even_where_the_message_has_lines(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(as_json=True)
    logger.info("first\nsecond “한글”")
    [line] = lines(capsys)
    told = json.loads(line)
    assert (told["level"], told["logger"], told["message"]) == ("info", "everystep.engine", "first\nsecond “한글”")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", told["time"])


def test_the_request_id_comes_from_the_context_or_the_call(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(as_json=True)
    with logging_request("r-1"):
        logger.info("inside")
        logger.info("named", extra={"request_id": "r-2"})
    logger.info("outside")
    assert [json.loads(line).get("request_id") for line in lines(capsys)] == ["r-1", "r-2", None]
    configure_logging()
    with logging_request("r-1"):
        logger.info("inside")
    assert lines(capsys)[0].endswith("inside [r-1]")


@pytest.mark.parametrize("as_json", [True, False])
def test_whatever_else_is_attached_to_a_record_is_not_written(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    configure_logging(as_json=as_json)
    logger.info("refused", extra={"prompt": "my secret", "api_key": "sk-123"})
    [line] = lines(capsys)
    assert "secret" not in line
    assert "sk-123" not in line


@pytest.mark.parametrize("as_json", [True, False])
def test_an_exception_is_written_with_its_traceback(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    configure_logging(as_json=as_json)
    try:
        raise ValueError("bad frame")
    except ValueError:
        logger.exception("worker failed")
    text = "\n".join(lines(capsys))
    assert "worker failed" in text
    assert "ValueError: bad frame" in text


@pytest.mark.parametrize("as_json", [True, False])
def test_the_list_of_accesses_is_without_queries_in_which_somebody_may_send_a_key(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    configure_logging(level="debug", as_json=as_json)
    configure_logging(level="debug", as_json=as_json)
    logging.getLogger("uvicorn.access").info(
        '%s - "%s %s HTTP/%s" %d', "127.0.0.1:5", "GET", "/steps?since=3&api_key=sk-123?x", "1.1", 200
    )
    [line] = lines(capsys)
    assert "/steps?... HTTP/1.1" in line
    assert "sk-123" not in line


def test_a_uvicorn_without_a_list_of_accesses_before_does_not_silence_it(capsys: pytest.CaptureFixture[str]) -> None:
    uvicorn.Config("app", log_config=None, access_log=False)
    logging.getLogger("uvicorn.access").setLevel("WARNING")
    configure_logging(level="debug")
    logging.getLogger("uvicorn.access").info("GET %s", "/steps")
    [line] = lines(capsys)
    assert line.endswith("GET /steps")


def test_lines_below_the_level_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(level="warning")
    logger.info("unseen")
    logger.warning("seen")
    assert len(lines(capsys)) == 1


def test_configuring_again_replaces_and_does_not_double(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(as_json=True)
    configure_logging(level="debug")
    logger.debug("once")
    [line] = lines(capsys)
    assert not line.startswith("{")


def test_other_libraries_are_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    root = list(logging.getLogger().handlers)
    configure_logging()
    assert logging.getLogger().handlers == root
    assert logging.getLogger("httpx").handlers == []
