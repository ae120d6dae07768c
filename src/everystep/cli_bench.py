"""``everystep bench``: its flags.

Owns what may be asked for and what goes together.  Ignorant of how anything is measured.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from pydantic import SecretStr

from everystep.config import PolicyName, Settings
from everystep.errors import ConfigError, EverystepError
from everystep.flags import Command, KeyType, given_flags, setting_flags
from everystep.settings_sources import client_keys, forget_secrets, load_settings

if TYPE_CHECKING:
    from everystep.bench.calibrate_predict import Predictor
    from everystep.bench.peers.roster import Lineup

DEFAULT_POLICIES = "static,per_token,continuous"
ENGINES = ("everystep", "hf-generate", "vllm", "openvino-genai")
KV_CACHE_GIB = 2.0  # several servers share the machine's memory: none may take what it finds
SHARED_SETTINGS = [
    "model", "runner", "precision", "deterministic", "device", "threads", "cache_dir", "max_model_len", "kv_cache_gib",
    "max_num_seqs", "max_num_batched_tokens", "prefix_cache", "static_batch_size", "per_token_batch_size",
    "vllm_python", "vllm_url", "vllm_api_key", "vllm_arg", "log_level",
]  # fmt: skip


class NumberList(click.ParamType[tuple[int, ...]]):
    """``1,4,16,64``: numbers of at least one."""

    name = "N,N,…"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(int(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} isn't a list of whole numbers such as 1,4,16", param, context)
        if min(numbers) < 1:
            self.fail(f"{min(numbers)} is below 1", param, context)
        return numbers


class Positive(click.FloatRange):
    """A finite number above 0."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        number: float = super().convert(value, param, context)
        if not math.isfinite(number):
            self.fail(f"{value} isn't a finite number", param, context)
        return number


LOAD_FLAGS = (
    click.option("-n", "sizes", type=NumberList(), default="1,4,16,64", show_default=True, help="prompts sent at once"),
    click.option(
        "--repeats", type=NumberList(), default="3", show_default=True, help="rounds counted, for all N or each"
    ),
    click.option("--rate", metavar="R,R,…", help="an open load: requests a second, or sweep: doubled until saturated"),
    click.option(
        "--dataset", default="fixed", show_default=True, metavar="fixed|lognormal|FILE", help="lengths, or a trace"
    ),
    click.option("--arrivals", default="poisson", show_default=True, metavar="poisson|constant|burst:SIZE"),
    click.option("--requests", "num_requests", type=click.IntRange(1), metavar="N", help="of an open load, per rate"),
    click.option("--duration", type=Positive(), metavar="S", help="of an open load, per rate  [default: 60]"),
    click.option("--time-scale", type=Positive(), default=1.0, metavar="F", help="a trace's times: 2 is half the rate"),
    click.option("--length-scale", type=Positive(), default=1.0, metavar="F", help="a trace's prompts and answers"),
    click.option("--max-requests", type=click.IntRange(1), metavar="N", help="a trace's first"),
    click.option("--slo-ttft", type=Positive(), metavar="S", help="a good request's time to first token, at most"),
    click.option("--slo-tpot", type=Positive(), metavar="S", help="a good request's time per further token, at most"),
    click.option("--slo-e2e", type=Positive(), metavar="S", help="a good request's whole time, at most"),
    click.option("--past-saturation", is_flag=True, help="go on to higher rates where a contender can't keep up"),
    click.option(
        "--max-tokens", "--output-tokens", "max_tokens", default="20", show_default=True, metavar="N|DIST",
        help="tokens a prompt; open loads: also uniform:LOW,HIGH or lognormal:MEDIAN,SIGMA[,MAX]",
    ),
    click.option("--prompt-tokens", metavar="N|DIST", help="a prompt's  [default: 6; open loads: 128]"),
    click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="of the load"),
)  # fmt: skip
CONTENDER_FLAGS = (
    click.option("--url", "urls", multiple=True, metavar="[NAME=]URL", help="a server that runs already, of any kind"),
    click.option(
        "--api", type=click.Choice(["everystep", "native", "openai"]), help="of the URLs  [default: find out]"
    ),
    click.option(
        "--api-key", multiple=True, type=KeyType(SecretStr), metavar="KEY",
        help="of the URLs, in their order; better given as the variable EVERYSTEP_API_KEY",
    ),
    click.option("--url-model", metavar="NAME", help="model to ask the URLs for  [default: the first that each lists]"),
    click.option(
        "--policies", default=DEFAULT_POLICIES, show_default=True, metavar="P,P,…",
        help="lanes of the everystep server; vllm needs --vllm-python or --vllm-url; none leaves it out",
    ),
    click.option(
        "--engine", "engines", multiple=True, type=click.Choice(ENGINES),
        help="a peer, started if it is there; everystep: our own server beside URLs",
    ),
    click.option("--torch-python", type=click.Path(path_type=Path), help="Python with torch, for hf-generate"),
    click.option("--genai-python", type=click.Path(path_type=Path), help="Python with openvino-genai"),
    click.option("--genai-model", type=click.Path(path_type=Path), help="what openvino-genai reads, if not --model"),
    click.option(
        "--peer-precision", default="auto", show_default=True, type=click.Choice(["auto", "f32", "bf16"]),
        help="of hf-generate and vllm; --precision is our own lanes'",
    ),
)  # fmt: skip


def _flags(flags: tuple[Callable[[Command], Command], ...]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for flag in reversed(flags):
            command = flag(command)
        return command

    return decorate


@click.command()
@_flags(CONTENDER_FLAGS)
@_flags(LOAD_FLAGS)
@click.option("--calibrate", is_flag=True, help="fit what a step costs, in under a minute: calibration.json in --out")
@click.option(
    "--calibration",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="predict our lanes' wall times from this, beside the measured ones",
)
@click.option("--steps", "keeps_steps", is_flag=True, help="write the step log of a pass of each of our lanes")
@click.option("--no-figures", is_flag=True, help="draw none; python -m everystep.bench.figures OUT does it later")
@click.option("--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True, help="folder")
@click.option("--json", "as_json", is_flag=True, help="print the result file instead of tables")
@setting_flags(SHARED_SETTINGS)
@click.pass_context
def bench(context: click.Context, /, out: Path, as_json: bool, no_figures: bool, **flags: Any) -> None:
    """Measure lanes, peers and other servers in turn: N prompts at once, or arrivals at a rate.

    Equal tokens for all, and only one contender works at a time. Peers that aren't installed are left out, in one line
    each. Writes bench.json, .csv, .md, samples.jsonl and figures/.
    """
    settings = load_settings(given_flags(flags), os.environ)
    flags["keys"] = client_keys(flags["api_key"], os.environ)
    forget_secrets(os.environ)
    context.meta["everystep.debug"] = settings.log_level == "debug"
    _require_client()
    from everystep.bench.orders import order_of
    from everystep.bench.report import all_tables, day_line
    from everystep.bench.run import run
    from everystep.bench.terminal import Bar, show

    given = {name for name in context.params if context.get_parameter_source(name) is not ParameterSource.DEFAULT}
    if flags["calibrate"]:
        _calibrate(settings, given, out, as_json, flags)
        return
    order = order_of(flags, given)
    lineup = _lineup(settings, order.most_at_once, out, flags, "policies" in given)
    predict = _predictor(flags["calibration"], lineup)
    with Bar() as bar:
        result = run(lineup, order, out, bar, predict, draws=not no_figures)
    if as_json:
        print(json.dumps(result, indent=1, ensure_ascii=False))
        return
    show(all_tables(result))
    for line in (day_line(result), *result["notes"], f"written: {out}/bench.json, .csv, .md, samples.jsonl"):
        print(line)


def _calibrate(settings: Settings, given: set[str], out: Path, as_json: bool, flags: dict[str, Any]) -> None:
    from everystep.bench.calibrate_command import check_alone, run_calibration
    from everystep.bench.calibrate_tables import cost_table, fit_lines
    from everystep.bench.peers.targets import parse_target
    from everystep.bench.terminal import Bar, show

    check_alone(given)
    settings, targets = _for_servers(settings, settings.max_num_seqs), tuple(map(parse_target, flags["urls"]))
    with Bar() as bar:
        found, lines = run_calibration(settings, targets, flags["keys"], out, flags["seed"], bar.say)
    if as_json:
        print((out / "calibration.json").read_text(encoding="utf-8"), end="")
        return
    show([cost_table(found)])
    for line in (*fit_lines(found), *lines):
        print(line)


def _predictor(calibration: Path | None, lineup: Lineup) -> Predictor | None:
    if calibration is None:
        return None
    from everystep.bench.calibrate_predict import predictor

    return predictor(calibration, lineup.settings, lineup.urls, lineup.keys)


def _require_client() -> None:
    if importlib.util.find_spec("httpx") is None:
        raise EverystepError("everystep bench needs httpx: pip install 'everystep[bench]'")


def _lineup(
    settings: Settings, most_prompts: int, out: Path, flags: dict[str, Any], are_policies_given: bool
) -> Lineup:
    from everystep.bench.folders import log_folder
    from everystep.bench.peers.roster import Lineup
    from everystep.bench.peers.targets import parse_target

    return Lineup(
        settings=_for_servers(settings, most_prompts),
        policies=_policies(flags["policies"]),
        engines=tuple(dict.fromkeys(flags["engines"])),
        logs=log_folder(out),
        urls=tuple(map(parse_target, flags["urls"])),
        keys=flags["keys"],
        are_policies_given=are_policies_given,
        api=flags["api"],
        url_model=flags["url_model"],
        keeps_steps=flags["keeps_steps"],
        torch_python=str(flags["torch_python"] or sys.executable),
        genai_python=str(flags["genai_python"] or sys.executable),
        genai_model=flags["genai_model"] or _file_of(settings, flags["engines"]),
        peer_precision=flags["peer_precision"],
    )


def _for_servers(settings: Settings, most_prompts: int) -> Settings:
    """A cache that leaves room for others, and a line that holds the largest load."""
    changes: dict[str, object] = {"max_queue": max(settings.max_queue, most_prompts)}
    if settings.kv_cache_gib is None:
        changes["kv_cache_gib"] = KV_CACHE_GIB
    return settings.model_copy(update=changes)


def _policies(words: str) -> tuple[str, ...]:
    names = [] if words == "none" else [name.strip() for name in words.split(",")]
    known = PolicyName.__args__  # type: ignore[attr-defined]
    for name in names:
        if name not in known:
            raise ConfigError(f"--policies: {name!r} is none of {', '.join(known)}")
    return tuple(dict.fromkeys(names))


def _file_of(settings: Settings, engines: tuple[str, ...]) -> Path | None:
    """The default model's file, for a peer that can't find it by name."""
    if "openvino-genai" not in engines or Path(settings.model).exists():
        return None
    from everystep.checkpoint import default_cache_dir
    from everystep.checkpoint import pull as pull_model

    return pull_model(settings.model, settings.cache_dir or default_cache_dir())
