"""Keys: from every source, kept as hashes alone, and nowhere else in the process or its children."""

from __future__ import annotations

import gc
import json
import logging
import os
import pickle
import struct
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import SecretStr, ValidationError

from cli.served import TINY
from everystep.api import create_app
from everystep.api_keys import HashedKey, read_key_file
from everystep.cli import commands, run
from everystep.config import Settings
from everystep.engine.client import EngineClient
from everystep.engine.handle import worker_args
from everystep.errors import ConfigError
from everystep.settings_sources import client_keys, forget_secrets, load_settings, with_file_keys

MARKER = "marker-" + "3f9c" * 6  # long enough that nobody else says it


def opens(settings: Settings, key: str) -> bool:
    return any(one.matches(key.encode()) for one in settings.api_key)


@pytest.fixture
def key_file(tmp_path: Path) -> Callable[..., Path]:
    def write(data: bytes, mode: int = 0o600) -> Path:
        path = tmp_path / "keys"
        path.write_bytes(data)
        path.chmod(mode)
        return path

    return write


# --- what a key is ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("", "must not be empty"),
        (" ", "printable ASCII"),
        ("two words", "printable ASCII"),
        ("tab\tbed", "printable ASCII"),
        ("line\n", "printable ASCII"),
        ("nul\0", "printable ASCII"),
        ("del\x7f", "printable ASCII"),
        ("Schlüssel", "printable ASCII"),
        ("\ud800", "printable ASCII"),
        ("k" * 4097, "4097 characters is over the limit of 4096"),
    ],
)
def test_what_no_client_could_send_is_refused_without_being_shown(key: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as direct:
        HashedKey(key)
    with pytest.raises(ConfigError, match=words) as loaded:
        load_settings({"api_key": [key]})
    with pytest.raises(ConfigError, match=words):
        load_settings({"vllm_api_key": key})
    assert len(key) < 2 or key not in f"{direct.value}{loaded.value.message}"


@pytest.mark.parametrize("key", ["k", "sk-abc_DEF.123", "a+b/c==", "!#$%&'()*,:;<>?@[]^`{|}~\"\\", "k" * 4096])
def test_what_a_client_can_send_is_recognised_and_nothing_near_it(key: str) -> None:
    hashed = HashedKey(key)
    assert hashed.matches(key.encode())
    for other in (key[:-1], key + "x", key + "\n", key.swapcase() + "_", "", "é"):
        assert not hashed.matches(other.encode())


def test_equal_keys_have_nothing_in_common_that_could_be_looked_up() -> None:
    one, other = HashedKey(MARKER), HashedKey(MARKER)
    assert pickle.dumps(one) != pickle.dumps(other)
    assert not {one._salt, one._digest} & {other._salt, other._digest}


def test_a_hash_survives_the_way_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(HashedKey(MARKER))).matches(MARKER.encode())


# --- the file ----------------------------------------------------------------------------------------
def test_a_file_holds_a_key_a_line_and_comments(key_file: Any) -> None:
    path = key_file(b"\xef\xbb\xbf# team a\r\nfirst-key\r\n\n   second-key \n\t# not#a-key\nthird#key")
    keys = read_key_file(path)
    assert [[key.matches(word) for key in keys] for word in (b"first-key", b"second-key", b"third#key")] == [
        [True, False, False],
        [False, True, False],
        [False, False, True],
    ]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "holds no key"),
        (b"# nothing\n\n", "holds no key"),
        (b"\xff\xfe\x00", "isn't UTF-8"),
        (b"ok\nSECRET two\n", "line 2: a key must be of printable ASCII"),
        (b"SECRET\0\n", "line 1: a key must be of printable ASCII"),
        ("SECRETä\n".encode(), "line 1: a key must be of printable ASCII"),
        (b"SECRET" * 200_000, "the most that is read"),
    ],
)
def test_a_file_that_is_none_is_refused_in_one_line_without_its_content(key_file: Any, data: bytes, words: str) -> None:
    path = key_file(data)
    with pytest.raises(ConfigError) as caught:
        with_file_keys(Settings(api_key_file=path))
    assert caught.value.message.startswith(f"api_key_file {path}")
    assert words in caught.value.message
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))
    assert "\n" not in caught.value.message


def test_a_file_that_isnt_there_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read: No such file or directory"):
        read_key_file(tmp_path / "absent")
    with pytest.raises(ConfigError, match="can't be read: Is a directory"):
        read_key_file(tmp_path)
    with pytest.raises(ConfigError, match="can't be read"):
        read_key_file(Path("a\0b"))


@pytest.mark.skipif(os.getuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_refused(key_file: Any) -> None:
    with pytest.raises(ConfigError, match="can't be read: Permission denied"):
        read_key_file(key_file(b"k", mode=0o000))


@pytest.mark.parametrize(("mode", "num_warnings"), [(0o600, 0), (0o400, 0), (0o640, 1), (0o644, 1), (0o602, 1)])
def test_a_file_that_others_may_read_or_write_is_warned_of(
    key_file: Any, mode: int, num_warnings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(
        logging.getLogger("everystep.api_keys"), "warning", lambda words, *values: said.append(words % values)
    )
    path = key_file(b"k-1234567890123456\n", mode)
    read_key_file(path)
    assert said == [f"api_key_file {path} can be read or written by others than its owner: chmod 600"] * num_warnings


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="Linux's way of access lists")
@pytest.mark.parametrize(("mode", "num_warnings"), [(0o640, 0), (0o644, 1)])
def test_the_mask_of_an_access_list_is_no_group_that_may_read(
    key_file: Any, mode: int, num_warnings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd gives a service its credentials so: its user may read, and stat shows the mask as the group's bits."""
    said: list[str] = []
    monkeypatch.setattr(logging.getLogger("everystep.api_keys"), "warning", lambda words, *values: said.append(words))
    path = key_file(b"k-1234567890123456\n")
    user, group, others = 1000, 0xFFFFFFFF, mode & 7
    # acl(5) as the kernel keeps it: a version, then (tag, permissions, id) for owner, user, group, mask, others
    entries = [(1, 6, group), (2, 4, user), (4, 0, group), (16, 4, group), (32, others, group)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(path, "system.posix_acl_access", acl)
    except OSError:
        pytest.skip("this file system has no access lists")
    assert path.stat().st_mode & 0o777 == mode
    read_key_file(path)
    assert len(said) == num_warnings


def test_the_keys_of_flag_and_file_add_up(key_file: Any) -> None:
    settings = with_file_keys(Settings(api_key=("from-flag",), api_key_file=key_file(b"from-file\n")))
    assert [opens(settings, key) for key in ("from-flag", "from-file", "neither")] == [True, True, False]
    assert settings.api_key_file is None


def test_more_keys_than_each_request_should_be_compared_with_are_refused(key_file: Any) -> None:
    path = key_file(b"".join(b"key-%d\n" % number for number in range(256)))
    assert len(with_file_keys(Settings(api_key_file=path)).api_key) == 256
    with pytest.raises(ConfigError, match="257 API keys are over the limit of 256"):
        with_file_keys(Settings(api_key=("one-more",), api_key_file=path))
    with pytest.raises(ConfigError, match="at most 256 items"):
        load_settings({"api_key": [f"key-{number}" for number in range(257)]})


def test_a_pipe_will_do_for_a_file_since_it_is_read_once() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"from-pipe\n")
    os.close(writing)
    try:
        settings = Settings(model=str(TINY), runner="fake", api_key_file=Path(f"/dev/fd/{reading}"))
        app = create_app(with_file_keys(settings))
        assert app.state.engine.settings.api_key[0].matches(b"from-pipe")
    finally:
        os.close(reading)


@pytest.mark.parametrize("given", ["settings", "engine"])
def test_an_application_with_a_key_file_reads_it_whoever_makes_it(key_file: Any, given: str) -> None:
    settings = Settings(model=str(TINY), runner="fake", api_key_file=key_file(b"\n"))
    with pytest.raises(ConfigError, match="holds no key"):
        create_app(settings) if given == "settings" else create_app(engine=EngineClient(settings))


# --- nothing shows a key ------------------------------------------------------------------------------
SECRET_SETTINGS: dict[str, Any] = {"api_key": (MARKER,), "vllm_api_key": MARKER}


def test_settings_show_no_key_in_any_form() -> None:
    settings = Settings(**SECRET_SETTINGS)
    shown = [repr(settings), str(settings), settings.model_dump_json(), json.dumps(settings.model_dump(mode="json"))]
    shown += [repr(settings.model_dump()), repr(vars(settings)), repr(settings.api_key[0])]
    assert not any(MARKER in words for words in shown)
    assert settings.vllm_api_key is not None
    assert settings.vllm_api_key.get_secret_value() == MARKER


def test_copies_through_python_keep_the_keys() -> None:
    settings = Settings(**SECRET_SETTINGS)
    again = load_settings(settings.model_dump(exclude_unset=True))
    assert again == settings
    assert opens(again, MARKER)


@pytest.mark.parametrize(
    "wrong",
    [
        {"api_key": (MARKER, 5)},
        {"api_key": (MARKER, "")},
        {"api_key": MARKER + " "},
        {"api_key": {MARKER: 1}},
        {"api_key": (MARKER,), "port": -1},
        {"api_key": (MARKER,), "max_num_seqs": 600},
        {"api_key": (MARKER,), "insecure_no_auth": True},
        {"vllm_api_key": MARKER, "max_num_seqs": 600},
        {"vllm_api_key": [MARKER]},
        {"vllm_api_key": MARKER + "\n"},
        {"vllm_url": f"http://user:{MARKER}@host"},
        {"vllm_url": f"user:{MARKER}@host"},
    ],
)
def test_no_error_shows_a_key_nor_does_its_traceback(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as direct:
        Settings(**wrong)
    with pytest.raises(ConfigError) as loaded:
        load_settings(wrong)
    for error in (direct.value, loaded.value):
        assert MARKER not in "".join(traceback.format_exception(error)), error
        assert MARKER not in repr(error)


def test_a_key_in_a_config_file_or_a_variable_isnt_shown_by_what_is_wrong_beside_it(tmp_path: Path) -> None:
    config = tmp_path / "everystep.toml"
    for text in (
        f'api_key = ["{MARKER}", 3]',
        f'api_key = "{MARKER}',
        f'api_key = "{MARKER}"\nport = true',
        f"{MARKER}",
    ):
        config.write_text(text)
        with pytest.raises(ConfigError) as caught:
            load_settings(config=config)
        assert MARKER not in "".join(traceback.format_exception(caught.value))
    for environ in (
        {"EVERYSTEP_API_KEY": f"{MARKER},,"},
        {"EVERYSTEP_API_KEYS": MARKER},
        {"EVERYSTEP_API_KEY": "tcp://" + MARKER},
        {"EVERYSTEP_VLLM_API_KEY": MARKER + " ", "EVERYSTEP_PORT": "8000"},
    ):
        with pytest.raises(ConfigError) as caught:
            load_settings(environ=environ)
        assert MARKER not in "".join(traceback.format_exception(caught.value))


def test_the_contradiction_of_keys_and_none_is_refused(key_file: Any) -> None:
    with pytest.raises(ConfigError, match="insecure_no_auth lets everybody in, and api_key only some: drop one"):
        load_settings({"api_key": ["k"], "insecure_no_auth": True})
    with pytest.raises(ConfigError, match="and api_key_file only some"):
        load_settings({"api_key_file": key_file(b"k"), "insecure_no_auth": True})


@pytest.mark.parametrize(
    "args",
    [
        ["serve", "--api-key", MARKER + " "],
        ["serve", "--api-key", MARKER, "--port", "many"],
        ["serve", f"--api-keys={MARKER}"],
        ["serve", f"--api_key={MARKER}"],
        ["serve", "--api-key", MARKER, "--insecure-no-auth", "--log-level", "debug"],
        ["serve", "--vllm-api-key", MARKER + "ä", "--log-level", "debug"],
        ["serve", "--api-key", MARKER, "--model", "/nowhere", "--port", "0", "--log-level", "debug"],
        ["bench", "--api-key", MARKER + "\n", "--url", "http://127.0.0.1:9", "--log-level", "debug"],
        ["bench", "--url", f"http://user:{MARKER}@127.0.0.1:9", "--log-level", "debug"],
    ],
)
def test_a_command_that_fails_shows_no_key(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(args) in (1, 2)
    captured = capsys.readouterr()
    assert "everystep" in captured.err
    assert MARKER not in captured.out + captured.err


# --- where a key is not ---------------------------------------------------------------------------------
def reachable_texts(root: object) -> set[str]:
    """Every text that can be reached from an object, within its own state: classes and modules are left out."""
    seen: set[int] = set()
    texts: set[str] = set()
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type(os) | type):
            continue
        seen.add(id(one))
        if isinstance(one, str | bytes | bytearray):
            texts.add(one if isinstance(one, str) else bytes(one).decode("latin-1"))
        elif not callable(one) or isinstance(one, Settings):
            waiting += gc.get_referents(one)
        else:
            waiting += [cell.cell_contents for cell in getattr(one, "__closure__", None) or ()]
            waiting += list(vars(one).values()) if hasattr(one, "__dict__") else []
    return texts


def test_the_search_finds_a_key_where_one_is() -> None:
    assert MARKER in reachable_texts({"deep": [{"in": lambda: None}, {"here": SecretStr(MARKER)}]})


def test_no_plain_key_is_left_in_the_settings_the_app_or_what_a_worker_is_told(key_file: Any) -> None:
    in_file = MARKER[::-1]
    settings = Settings(
        model=str(TINY),
        runner="fake",
        api_key=(MARKER,),
        vllm_api_key="v-" + MARKER,
        api_key_file=key_file(in_file.encode()),
    )
    app = create_app(settings)
    middleware = app.build_middleware_stack()
    args = worker_args(app.state.engine.settings, epoch_s=0.0, first_step=0)
    texts = reachable_texts([app, middleware, app.state.engine, args])
    assert str(TINY) in texts  # so the search has been there
    assert not any(MARKER in text or in_file in text for text in texts - {"v-" + MARKER})
    told = pickle.dumps(args)
    assert MARKER.encode() not in told
    for key in app.state.engine.settings.api_key:
        assert key._digest not in told


def test_the_command_line_keeps_no_plain_key_while_the_command_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("everystep.serve.serve", lambda settings: seen.append(settings))
    monkeypatch.setattr("everystep.cli.commands.commands", dict(commands.commands))
    monkeypatch.setattr("everystep.cli._settings", _keep_context(seen))
    done = CliRunner().invoke(commands, ["serve", "--api-key", MARKER, "--vllm-api-key", MARKER])
    assert done.exit_code == 0, done.output
    context, flags, settings = seen
    assert opens(settings, MARKER)
    assert MARKER not in repr((context.params, flags, settings))


def _keep_context(seen: list[Any]) -> Callable[..., Settings]:
    def settings(context: Any, config: Any, flags: dict[str, Any]) -> Settings:
        seen.extend((context, dict(flags)))
        return load_settings({name: value for name, value in flags.items() if value not in (None, ())})

    return settings


def test_a_process_that_is_started_inherits_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERYSTEP_API_KEY", MARKER)
    monkeypatch.setenv("EVERYSTEP_VLLM_API_KEY", MARKER)
    monkeypatch.setenv("EVERYSTEP_PORT", "9")
    settings = load_settings(environ=os.environ)
    forget_secrets(os.environ)
    assert opens(settings, MARKER)
    assert MARKER not in os.environ.values()
    assert os.environ["EVERYSTEP_PORT"] == "9"
    forget_secrets(os.environ)  # nothing is there any more, which is no error


# --- the clients of our own -----------------------------------------------------------------------------
def test_a_benchmarks_keys_are_those_of_flags_or_else_of_the_variable_and_hidden() -> None:
    environ = {"EVERYSTEP_API_KEY": "a, b"}
    assert client_keys((), environ) == (SecretStr("a"), SecretStr("b"))
    assert client_keys((SecretStr("c"),), environ) == (SecretStr("c"),)
    assert client_keys((), {}) == ()
    assert MARKER not in repr(client_keys((SecretStr(MARKER),), {}))
    with pytest.raises(ConfigError, match="--api-key: a key must be of printable ASCII"):
        client_keys((SecretStr("a b"),), {})
