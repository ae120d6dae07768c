"""The command line: ``everystep serve`` and ``generate`` are here, the other commands in the files beside.

Owns the commands, the exit status (0 done, 1 failed, 2 wrong usage) and that an error for people is one line.  Ignorant
of how anything is done: each command imports what does it when it runs, so that ``--help`` is quick.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args

import click

from everystep.cli_bench import bench
from everystep.cli_models import convert, models, pull
from everystep.cli_plan import plan
from everystep.cli_replay import replay
from everystep.cli_simulate import simulate
from everystep.cli_top import top
from everystep.config import PolicyName, Settings
from everystep.errors import ConfigError, EverystepError, InvalidRequest
from everystep.flags import Command, given_flags, setting_flags
from everystep.observe.logs import configure_logging
from everystep.settings_sources import forget_secrets, load_settings
from everystep.version import __version__

if TYPE_CHECKING:
    from everystep.llm import Completion

logger = logging.getLogger(__name__)

DONE, FAILED, WRONG_USAGE = 0, 1, 2
LOGS_JSON = "everystep.logs_json"  # key of what a command's contexts share

SERVER_ONLY = {
    "served_model_name", "default_policy", "max_queue", "max_queue_tokens", "queue_timeout", "request_timeout",
    "drain_timeout", "stall_timeout", "host", "port", "api_key", "max_body_mib", "step_log_size", "vllm_python",
    "vllm_url", "vllm_arg", "vllm_api_key", "record", "client_timeout", "max_connections", "api_key_file",
    "insecure_no_auth", "log_prompts", "otel",
}  # fmt: skip
GENERATE_FIELDS = [field for field in Settings.model_fields if field not in SERVER_ONLY]
SAMPLING_FLAGS = (
    click.option("--max-tokens", type=int, default=20, show_default=True, metavar="N", help="most tokens a prompt"),
    click.option("--temperature", type=float, default=0.0, show_default=True, metavar="F", help="0 is greedy"),
    click.option("--top-p", type=float, default=1.0, metavar="F", help="draw from the likeliest, up to this mass"),
    click.option("--top-k", type=int, default=0, metavar="N", help="draw from the N likeliest"),
    click.option("--min-p", type=float, default=0.0, metavar="F", help="least probability, of the likeliest's"),
    click.option("--repetition-penalty", type=float, default=1.0, metavar="F", help="above 1 discourages repeats"),
    click.option("--stop", multiple=True, metavar="TEXT", help="end before this text; may be given more than once"),
    click.option("--ignore-eos", is_flag=True, help="go on after an end of text"),
)

config_flag = click.option(
    "--config", type=click.Path(path_type=Path), metavar="FILE.toml", help="settings as TOML keys"
)


def sampling_flags(command: Command) -> Command:
    """The flags of :class:`~everystep.sampling_params.SamplingParams` that a terminal wants."""
    for flag in reversed(SAMPLING_FLAGS):
        command = flag(command)
    return command


def main() -> NoReturn:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def run(args: Sequence[str]) -> int:
    """Run one command line and say how it went.  The one place where an exception becomes a line for people."""
    context = None
    try:
        with commands.make_context("everystep", list(args)) as context:
            commands.invoke(context)
        return DONE
    except click.exceptions.Exit as end:  # --help, --version
        return end.exit_code
    except click.ClickException as error:
        place = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "everystep"
        return _say(f"{place}: {error.format_message()}", WRONG_USAGE, context)
    except EverystepError as error:
        _trace_if_debugging(context)
        is_usage = isinstance(error, ConfigError | InvalidRequest)
        return _say(f"everystep: {error.message}", WRONG_USAGE if is_usage else FAILED, context)
    except BrokenPipeError:  # the reader left: `everystep generate … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing more to flush at exit
        return FAILED
    except (KeyboardInterrupt, click.Abort):
        return _say("everystep: interrupted", FAILED, context)
    except Exception as error:
        _trace_if_debugging(context)
        return _say(f"everystep: {type(error).__name__}: {error} (--log-level debug shows where)", FAILED, context)


def _say(words: str, status: int, context: click.Context | None) -> int:
    """The last line, in the form of the log where one is kept: it is what whoever collects logs must not miss."""
    line = " ".join(words.split())
    if context is not None and context.meta.get(LOGS_JSON):
        logger.error("%s", line)
    else:
        print(line, file=sys.stderr)
    return status


def _trace_if_debugging(context: click.Context | None) -> None:
    if context is not None and context.meta.get("everystep.debug"):
        traceback.print_exc()


@click.group(
    commands=[top, bench, simulate, plan, replay, pull, models, convert],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, message="everystep %(version)s")
def commands() -> None:
    """Serve a language model, and see who shares each forward pass.

    Every flag is also a variable (EVERYSTEP_MAX_NUM_SEQS) and a key of --config (max_num_seqs). A flag goes before
    a variable, a variable before the file.
    """


@commands.command()
@setting_flags(Settings.model_fields)
@config_flag
@click.pass_context
def serve(context: click.Context, /, config: Path | None, **flags: Any) -> None:
    """Serve a model over HTTP until a signal ends it."""
    settings = _settings(context, config, flags)
    from everystep.serve import serve as serve_until_signalled

    configure_logging(level=settings.log_level, as_json=settings.log_json)
    context.meta[LOGS_JSON] = settings.log_json
    serve_until_signalled(settings)


@commands.command()
@click.argument("prompts", nargs=-1, required=True, metavar="PROMPT...")
@click.option("--policy", type=click.Choice(get_args(PolicyName)), help="lane  [default: continuous, or the only one]")
@click.option("--json", "as_json", is_flag=True, help="a JSON object a line")
@sampling_flags
@setting_flags(GENERATE_FIELDS)
@config_flag
@click.pass_context
def generate(
    context: click.Context,
    /,
    config: Path | None,
    prompts: tuple[str, ...],
    policy: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Continue each PROMPT, without a server. A PROMPT of - is read from standard input."""
    from everystep.observe.logs import configure_logging
    from everystep.sampling_params import SamplingParams

    settings = _settings(context, config, flags)
    names = SamplingParams.__dataclass_fields__.keys() - Settings.model_fields.keys()
    params = SamplingParams(**{name: flags[name] for name in names & flags.keys()})
    configure_logging(level=settings.log_level, as_json=settings.log_json)
    texts = [sys.stdin.read() if prompt == "-" else prompt for prompt in prompts]
    from everystep.llm import LLM

    with LLM(policy=policy, **settings.model_dump(exclude_unset=True)) as llm:
        _print_completions(llm.generate(texts, params), as_json)


def _print_completions(completions: Sequence[Completion], as_json: bool) -> None:
    """One prompt: its text alone.  Several: each under its prompt."""
    for completion in completions:
        if as_json:
            fields = ("prompt", "text", "token_ids", "finish_reason")
            print(json.dumps({name: getattr(completion, name) for name in fields}, ensure_ascii=False))
        elif len(completions) == 1:
            print(completion.text)
        else:
            print(f"--- {completion.prompt}\n{completion.text}")


def _settings(context: click.Context, config: Path | None, flags: dict[str, Any]) -> Settings:
    settings = load_settings(given_flags(flags), os.environ, config)
    forget_secrets(os.environ)
    context.meta["everystep.debug"] = settings.log_level == "debug"
    return settings
