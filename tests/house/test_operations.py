"""docs/operations.md agrees with the code: errors, options, metrics, numbers, and the commands that it shows."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from everystep.api import create_app
from everystep.api.auth import OPEN_PATHS
from everystep.api.error_replies import MethodNotAllowed, error_reply, error_type
from everystep.api.figures import DEFAULT_WINDOW_S
from everystep.api.generations import MAX_LOGGED_CHARS
from everystep.api_keys import MAX_KEYS, MAX_LENGTH, SHORT
from everystep.cli import commands
from everystep.config import Settings
from everystep.engine.client.open_requests import MAX_UNREAD
from everystep.engine.client.patience import USUAL
from everystep.errors import ConfigError, EverystepError, ModelError
from everystep.http_framing import MAX_HEAD_BYTES
from everystep.http_limits import MAX_REFUSED, OTHER_FILES
from everystep.http_server import KEEP_ALIVE_S
from everystep.messages import EngineInfo, EngineStatus
from everystep.observe.limits import Limits
from everystep.observe.observer import Observer
from everystep.observe.processes import Processes
from everystep.observe.recent import MAX_WINDOW_S
from everystep.serve import STOP_SIGNALS
from everystep.settings_sources import flag_name

DOC = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", DOC, re.MULTILINE | re.DOTALL))
INFO = EngineInfo("smollm2-135m", "openvino", "int8", 2, 16, 100, 4096, 2048, {"static": 4}, {})
STATUS_BY_HAND = {MethodNotAllowed: 405}


def kinds_of_error(of: type[EverystepError]) -> Iterator[type[EverystepError]]:
    """Those that a client can be sent: the tree, without what a command says."""
    for kind in of.__subclasses__():
        if kind.__module__.startswith(("everystep.errors", "everystep.api")) and not issubclass(
            kind, ConfigError | ModelError
        ):
            yield kind
            yield from kinds_of_error(kind)


def test_every_error_stands_in_the_table_with_its_status_and_none_beside_them() -> None:
    assert create_app  # whose import makes every kind known
    rows = dict(re.findall(r"^\| `(\w+)` \| (\d{3}) \| [^|]+ \| [^|]+ \| [^|]+ \|$", SECTIONS["Errors"], re.MULTILINE))
    real = {
        error_type(kind("")): str(error_reply(kind(""), "/", status=STATUS_BY_HAND.get(kind)).status_code)
        for kind in kinds_of_error(EverystepError)
    }
    assert rows == real


def test_every_option_of_the_limits_is_one_and_every_bound_is_there() -> None:
    named = set(re.findall(r"^\| `(--[\w-]+)` \|", SECTIONS["Limits"], re.MULTILINE))
    flags = {flag_name(field) for field in Settings.model_fields}
    assert named <= flags
    bounds = {
        flag for flag in flags if re.search(r"--max-(?!num-batched)|timeout|-gib$", flag) and "utilization" not in flag
    }
    assert bounds <= named


def test_every_option_that_is_named_exists() -> None:
    others = {"--init", "--memory", "--cpus", "--stop-timeout", "--no-cache-dir", "--constraint", "--create-home",
              "--config"}  # fmt: skip
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]+", DOC)) - others
    tops = set(re.findall(r"^\| `(--[a-z][\w-]+)", SECTIONS["Watching it in a terminal"], re.MULTILINE))
    assert tops == {option for param in commands.commands["top"].params for option in param.opts}
    assert named <= {flag_name(field) for field in Settings.model_fields} | tops


def shown_commands() -> Iterator[list[str]]:
    """Each ``everystep serve`` of the page, as its arguments."""
    for line in re.findall(r"^(?:ExecStart=\S*/)?everystep (serve .*)$", DOC, re.MULTILINE):
        yield shlex.split(line)
    entry = json.loads(re.search(r"^ENTRYPOINT (.*)$", DOC, re.MULTILINE)[1])[1:]  # type: ignore[index]
    yield entry + json.loads(re.search(r"^CMD (.*)$", DOC, re.MULTILINE)[1])  # type: ignore[index]
    yield entry + re.search(r"^docker run .* IMAGE (.*)$", DOC, re.MULTILINE)[1].split()  # type: ignore[index]


@pytest.mark.parametrize("args", list(shown_commands()), ids=" ".join)
def test_a_command_that_is_shown_is_one_that_the_command_line_takes(args: list[str]) -> None:
    name, *rest = args
    context = commands.commands[name].make_context(name, rest)
    given = {key: value for key, value in context.params.items() if value not in (None, ())}
    assert given.pop("host") == "0.0.0.0"
    Settings(**given)


def test_all_four_commands_are_found() -> None:
    assert len(list(shown_commands())) == 4


def test_the_unit_is_one_and_gives_the_drain_its_time() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(re.search(r"```ini\n(.*?)```", DOC, re.DOTALL)[1])  # type: ignore[index]
    assert unit.sections() == ["Unit", "Service", "Install"]
    service = unit["Service"]
    drain_s = int(re.search(r"--drain-timeout (\d+)", service["ExecStart"])[1])  # type: ignore[index]
    assert int(service["TimeoutStopSec"]) > drain_s + USUAL.leave_s + USUAL.reap_s
    needed = Settings.model_fields["max_connections"].default + MAX_REFUSED + OTHER_FILES
    assert int(service["LimitNOFILE"]) >= needed
    assert f"and {MAX_REFUSED + OTHER_FILES} more" in DOC


def test_every_metric_that_is_named_is_one() -> None:
    status = EngineStatus(is_live=True, is_ready=True, reason="")
    also = (Limits(Settings(), INFO), Processes({"server": os.getpid()}))
    text = Observer(policies=("static",)).metrics.render(status, "0", 0.0, also)
    exposed = set(re.findall(r"^# TYPE (\w+) ", text.decode(), re.MULTILINE))
    named = set(re.findall(r"`(everystep_\w+)", SECTIONS["Metrics"] + SECTIONS["Monitoring"]))
    assert len(named) > 10
    assert named <= exposed


def test_the_numbers_are_the_codes() -> None:
    assert MAX_HEAD_BYTES == 64 * 1024
    assert f"closed after {KEEP_ALIVE_S:g} s" in DOC
    assert f"{Observer(policies=()).requests.max_requests:,} requests" in " ".join(DOC.split())
    assert f"first {MAX_LOGGED_CHARS:,} characters" in DOC
    assert f"at most {MAX_LENGTH:,} of them; under {SHORT} are warned of" in DOC
    assert f"up to\n{MAX_KEYS} keys" in DOC
    assert f"of the last 1 to {MAX_WINDOW_S} whole seconds" in " ".join(DOC.split())
    assert f"/figures?window_s={DEFAULT_WINDOW_S}`" in DOC
    assert f"{MAX_UNREAD:,} tokens behind" in DOC
    assert "After six ends the server says so" in DOC
    assert USUAL.max_failures == 6
    assert f"another starts after {USUAL.first_back_off_s:g} s" in DOC
    assert f"to {USUAL.back_off_s(USUAL.max_failures - 1):g} s. After six" in DOC
    assert f"(`--drain-timeout` ({Settings().drain_timeout:g} s)".strip("(") in DOC


def test_the_paths_without_a_key_and_the_signals_are_the_codes() -> None:
    assert set(re.findall(r"`(/health[\w/]*)`", SECTIONS["Health"])) == OPEN_PATHS
    [row] = re.findall(r"^\| (SIGTERM.*?) \|", DOC, re.MULTILINE)
    assert set(re.findall(r"SIG\w+", row)) == {signal.name for signal in STOP_SIGNALS}
