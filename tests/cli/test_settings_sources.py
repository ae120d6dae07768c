"""One setting, three spellings, one order of precedence, one line about what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from pydantic import SecretStr

from everystep.config import Settings
from everystep.errors import ConfigError
from everystep.flags import given_flags, setting_flags
from everystep.settings_sources import load_settings


@dataclass(frozen=True)
class Opens:
    """Equal to hashed keys that are of these, in this order."""

    keys: tuple[str, ...]

    def __init__(self, *keys: str) -> None:
        object.__setattr__(self, "keys", keys)

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, tuple)
        return [[one.matches(key.encode()) for key in self.keys] for one in other] == [
            [number == place for place in range(len(self.keys))] for number in range(len(self.keys))
        ]


# Field → how it is typed on the command line, in a variable, in TOML; and the value all three must give.
EXAMPLES: dict[str, tuple[list[str], str, str, object]] = {
    "model": (["--model", "a/b"], "a/b", '"a/b"', "a/b"),
    "served_model_name": (["--served-model-name", "x"], "x", '"x"', "x"),
    "runner": (["--runner", "fake"], "fake", '"fake"', "fake"),
    "precision": (["--precision", "f32"], "f32", '"f32"', "f32"),
    "deterministic": (["--deterministic"], "true", "true", True),
    "device": (["--device", "cpu"], "cpu", '"cpu"', "cpu"),
    "gpu_memory_utilization": (["--gpu-memory-utilization", "0.5"], "0.5", "0.5", 0.5),
    "threads": (["--threads", "3"], "3", "3", 3),
    "cache_dir": (["--cache-dir", "/c"], "/c", '"/c"', Path("/c")),
    "seed": (["--seed", "7"], "7", "7", 7),
    "max_model_len": (["--max-model-len", "99"], "99", "99", 99),
    "kv_cache_gib": (["--kv-cache-gib", "0.5"], "0.5", "0.5", 0.5),
    "max_num_seqs": (["--max-num-seqs", "8"], "8", "8", 8),
    "max_num_batched_tokens": (["--max-num-batched-tokens", "128"], "128", "128", 128),
    "prefix_cache": (["--no-prefix-cache"], "false", "false", False),
    "static_batch_size": (["--static-batch-size", "5"], "5", "5", 5),
    "static_max_batch_tokens": (["--static-max-batch-tokens", "50"], "50", "50", 50),
    "static_max_wait": (["--static-max-wait", "0.25"], "0.25", "0.25", 0.25),
    "per_token_batch_size": (["--per-token-batch-size", "6"], "6", "6", 6),
    "per_token_max_batch_tokens": (["--per-token-max-batch-tokens", "60"], "60", "60", 60),
    "default_policy": (["--default-policy", "per_token"], "per_token", '"per_token"', "per_token"),
    "ageing_s": (["--ageing-s", "2"], "2", "2", 2.0),
    "max_queue": (["--max-queue", "9"], "9", "9", 9),
    "max_queue_tokens": (["--max-queue-tokens", "900"], "900", "900", 900),
    "queue_timeout": (["--queue-timeout", "1.5"], "1.5", "1.5", 1.5),
    "request_timeout": (["--request-timeout", "4"], "4", "4", 4.0),
    "drain_timeout": (["--drain-timeout", "0"], "0", "0", 0.0),
    "stall_timeout": (["--stall-timeout", "3"], "3", "3", 3.0),
    "client_timeout": (["--client-timeout", "5"], "5", "5", 5.0),
    "max_connections": (["--max-connections", "99"], "99", "99", 99),
    "host": (["--host", "::1"], "::1", '"::1"', "::1"),
    "port": (["--port", "0"], "0", "0", 0),
    "api_key": (["--api-key", "a", "--api-key", "b"], "a,b", '["a", "b"]', Opens("a", "b")),
    "api_key_file": (["--api-key-file", "/k"], "/k", '"/k"', Path("/k")),
    "insecure_no_auth": (["--insecure-no-auth"], "true", "true", True),
    "max_body_mib": (["--max-body-mib", "1"], "1", "1", 1.0),
    "step_log_size": (["--step-log-size", "20000"], "20000", "20000", 20000),
    "record": (["--record", "/r.jsonl"], "/r.jsonl", '"/r.jsonl"', Path("/r.jsonl")),
    "log_level": (["--log-level", "debug"], "debug", '"debug"', "debug"),
    "log_json": (["--log-json"], "on", "true", True),
    "log_prompts": (["--log-prompts"], "on", "true", True),
    "otel": (["--otel"], "on", "true", True),
    "vllm_python": (["--vllm-python", "/p"], "/p", '"/p"', Path("/p")),
    "vllm_url": (["--vllm-url", "http://h"], "http://h", '"http://h"', "http://h"),
    "vllm_api_key": (["--vllm-api-key", "k"], "k", '"k"', SecretStr("k")),
    "vllm_arg": (["--vllm-arg", "a=1", "--vllm-arg", "b=x"], "a=1,b=x", '["a=1", "b=x"]', ("a=1", "b=x")),
}


def parse(args: list[str]) -> dict[str, object]:
    """The settings that a command line gives."""
    seen: dict[str, object] = {}

    @click.command()
    @setting_flags(Settings.model_fields)
    def command(**flags: object) -> None:
        seen.update(given_flags(flags))

    command.main(args, standalone_mode=False)
    return seen


def write(folder: Path, text: str) -> Path:
    path = folder / "everystep.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_setting_has_an_example_here() -> None:
    assert EXAMPLES.keys() == Settings.model_fields.keys()


@pytest.mark.parametrize("field", Settings.model_fields)
def test_flag_variable_and_key_of_a_setting_give_the_same_value(field: str, tmp_path: Path) -> None:
    args, variable, toml, value = EXAMPLES[field]
    assert value != getattr(Settings(), field), "an example must differ from the default"
    by_flag = load_settings(parse(args))
    by_variable = load_settings(environ={f"EVERYSTEP_{field.upper()}": variable})
    by_file = load_settings(config=write(tmp_path, f"{field} = {toml}"))
    assert [getattr(each, field) for each in (by_flag, by_variable, by_file)] == [value] * 3


def test_a_flag_goes_before_a_variable_and_a_variable_before_the_file(tmp_path: Path) -> None:
    config = write(tmp_path, "port = 1\nmax_queue = 1\nseed = 1")
    environ = {"EVERYSTEP_PORT": "2", "EVERYSTEP_MAX_QUEUE": "2"}
    settings = load_settings({"port": 3}, environ, config)
    assert (settings.port, settings.max_queue, settings.seed, settings.host) == (3, 2, 1, "127.0.0.1")


def test_the_file_may_be_named_by_a_variable_and_the_flag_goes_before_it(tmp_path: Path) -> None:
    config = write(tmp_path, "port = 1")
    other = tmp_path / "other.toml"
    other.write_text("port = 2")
    environ = {"EVERYSTEP_CONFIG": str(config)}
    assert load_settings(environ=environ).port == 1
    assert load_settings(environ=environ, config=other).port == 2


def test_a_switch_may_be_given_as_its_opposite_and_turned_back_by_a_flag(tmp_path: Path) -> None:
    assert load_settings(environ={"EVERYSTEP_NO_PREFIX_CACHE": "1"}).prefix_cache is False
    assert load_settings(config=write(tmp_path, "no-prefix-cache = true")).prefix_cache is False
    assert load_settings(parse(["--prefix-cache"]), {"EVERYSTEP_PREFIX_CACHE": "no"}).prefix_cache is True
    assert load_settings(parse(["--no-log-json"]), {"EVERYSTEP_LOG_JSON": "true"}).log_json is False


def test_variables_of_others_are_none_of_our_business() -> None:
    assert load_settings(environ={"PORT": "1", "HOST": "x", "MYEVERYSTEP_PORT": "x"}) == Settings()


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"EVERYSTEP_PROT": "1"}, "EVERYSTEP_PROT: no such setting; did you mean 'port'?"),
        ({"EVERYSTEP_ZZZ": "1"}, "EVERYSTEP_ZZZ: no such setting"),
        ({"EVERYSTEP_PORT": "99999"}, "EVERYSTEP_PORT: '99999': input should be less than or equal to 65535"),
        ({"EVERYSTEP_PORT": "tcp://10.0.0.1:80"}, "Kubernetes service link"),
        ({"EVERYSTEP_API_KEY": ""}, "EVERYSTEP_API_KEY is empty"),
        ({"EVERYSTEP_LOG_JSON": "maybe"}, "EVERYSTEP_LOG_JSON: 'maybe' must be true or false"),
        ({"EVERYSTEP_PREFIX_CACHE": "1", "EVERYSTEP_NO_PREFIX_CACHE": "1"}, "say the same twice"),
        ({"EVERYSTEP_RUNNER": "gpu"}, "EVERYSTEP_RUNNER: 'gpu': input should be 'auto'"),
        ({"EVERYSTEP_CONFIG": "/nowhere/x.toml"}, "can't read /nowhere/x.toml: No such file"),
        ({"EVERYSTEP_MAX_NUM_SEQS": "600"}, "max_num_batched_tokens=512 is below max_num_seqs=600"),
    ],
)
def test_a_wrong_variable_is_refused_in_one_line_that_names_it(environ: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(environ=environ)
    assert words in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("max_num_seq = 3", "max_num_seq in everystep.toml: no such setting; did you mean 'max_num_seqs'?"),
        ("[serve]\nport = 1", "serve in everystep.toml: no such setting"),
        ("port = true", "port in everystep.toml: true isn't a value of this setting"),
        ("port = 1\nport = 2", "isn't TOML"),
        ("max-queue = 1\nmax_queue = 2", "say the same twice"),
        ("ageing_s = nan", "ageing_s in everystep.toml: nan: input should be"),
        ("threads = 0", "threads in everystep.toml: 0: input should be greater than or equal to 1"),
        ("port = [1, 2]", "port in everystep.toml: [1, 2]: input should be a valid integer"),
    ],
)
def test_a_wrong_key_is_refused_in_one_line_that_names_the_file(toml: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(config=write(tmp_path, toml))
    assert words in caught.value.message


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "everystep.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="isn't TOML"):
        load_settings(config=path)


def test_an_api_key_is_never_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings({"api_key": ["s3cret", 5]})
    assert "s3cret" not in caught.value.message
    assert "--api-key" in caught.value.message
