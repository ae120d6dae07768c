"""``everystep plan``: its flags.

Owns what may be asked for and what goes together.  Ignorant of how a rate is found and of how a plan is shown.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from everystep.cli_bench import Positive
from everystep.config import Settings
from everystep.errors import ConfigError
from everystep.flags import given_flags, setting_flags
from everystep.settings_sources import load_settings, read_environment

if TYPE_CHECKING:
    from everystep.analysis.calibration import Calibration
    from everystep.analysis.capacity_cases import Change
    from everystep.analysis.capacity_load import LoadShape
    from everystep.analysis.outcome import Slo

NUM_DRAWS = 3
TOKENS_A_DRAW = 24_000  # generated in a simulated draw, unless --requests says how many it has
FEWEST, MOST = 500, 2_000  # requests of a draw
BATCH_SETTINGS = [
    "max_num_seqs", "max_num_batched_tokens", "kv_cache_gib", "max_model_len", "prefix_cache", "static_batch_size",
    "static_max_batch_tokens", "static_max_wait", "per_token_batch_size", "per_token_max_batch_tokens", "max_queue",
]  # fmt: skip
# Flags that a kind of load has no use for, by the parameter's name.
IDLE_FLAGS = {
    "--trace": ("prompt_tokens", "output_tokens", "arrivals", "num_requests", "num_draws", "seed"),
    "--prompt-tokens": ("length_scale", "max_requests"),
}


@click.command()
@click.option(
    "--calibration", type=click.Path(path_type=Path), required=True, metavar="FILE.json",
    help="made by everystep bench --calibrate",
)  # fmt: skip
@click.option("--rate", type=Positive(), metavar="R", help="requests a second, all servers'  [default: the trace's]")
@click.option("--prompt-tokens", metavar="DIST", help="a prompt's: 128, uniform:LOW,HIGH, lognormal:MEDIAN,SIGMA[,MAX]")
@click.option("--output-tokens", metavar="DIST", help="an answer's, likewise")
@click.option(
    "--trace", type=click.Path(path_type=Path), metavar="FILE",
    help="recorded arrivals, JSON lines or CSV; each rate that is tried scales their times",
)  # fmt: skip
@click.option("--length-scale", type=Positive(), default=1.0, metavar="F", help="a trace's prompts and answers")
@click.option("--max-requests", type=click.IntRange(1), metavar="N", help="a trace's first")
@click.option("--slo-ttft-p99", type=Positive(), metavar="S", help="p99 of the time to first token, at most")
@click.option("--slo-tpot-p99", type=Positive(), metavar="S", help="p99 of the time per further token, at most")
@click.option("--slo-e2e-p99", type=Positive(), metavar="S", help="p99 of the whole answer's time, at most")
@click.option(
    "--policy", type=click.Choice(["static", "per_token", "continuous"]), default="continuous", show_default=True,
    help="lane",
)  # fmt: skip
@click.option("--arrivals", default="poisson", show_default=True, metavar="poisson|constant|burst:SIZE")
@click.option(
    "--requests", "num_requests", type=click.IntRange(100), metavar="N",
    help="of a simulated draw  [default: 24,000 tokens' worth]",
)  # fmt: skip
@click.option(
    "--draws", "num_draws", type=click.IntRange(1), default=NUM_DRAWS, show_default=True, metavar="N",
    help="of the load, judged together; their spread is shown",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="of the first draw")
@click.option("--headroom", type=float, default=0.0, show_default=True, metavar="F", help="share left free, 0 to 1")
@click.option(
    "--what-if", "what_ifs", multiple=True, metavar="SETTING=VALUE",
    help="another row: a batch setting changed; may be given more than once",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="print everything as JSON instead of tables")
@setting_flags(BATCH_SETTINGS)
@click.pass_context
def plan(
    context: click.Context, /, calibration: Path, policy: str, headroom: float, as_json: bool, **flags: Any
) -> None:
    """How many servers a load needs, and what binds them: simulated from a calibration, under an objective."""
    _refuse_idle_flags(context, _kind(flags))
    from everystep.analysis.calibration import load_calibration
    from everystep.analysis.capacity import num_rows, plan_capacity
    from everystep.bench.plan_tables import as_json_object, closing_lines, tables
    from everystep.bench.terminal import Bar, show

    calibrated, slo = load_calibration(calibration), _slo(flags)
    settings = _settings(calibrated, flags)
    machine, (shape, rate) = calibrated.machine(settings), _load(flags)
    extra = _what_ifs(calibrated, settings, policy, flags["what_ifs"])
    with Bar() as bar:
        bar.total(num_rows(shape, settings, policy, machine, len(extra)))
        made = plan_capacity(
            machine, settings, shape, slo, rate, policy=policy, headroom=headroom, extra=extra, say=bar.turn
        )
    if as_json:
        print(json.dumps(as_json_object(made, calibrated), indent=1, ensure_ascii=False, allow_nan=False))
        return
    show(tables(made))
    for line in closing_lines(made):
        print(line)


def _kind(flags: Mapping[str, Any]) -> str:
    """The flag that says what the load is."""
    lengths = [name for name in ("prompt_tokens", "output_tokens") if flags[name] is not None]
    if flags["trace"] is not None:
        return "--trace"
    if len(lengths) < 2:
        raise ConfigError("give --prompt-tokens and --output-tokens, or --trace")
    if flags["rate"] is None:
        raise ConfigError("give --rate: only a trace has a rate of its own")
    return "--prompt-tokens"


def _refuse_idle_flags(context: click.Context, kind: str) -> None:
    """A flag that would change nothing is a mistake of somebody's."""
    for name in IDLE_FLAGS[kind]:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            (option,) = (param.opts[0] for param in context.command.params if param.name == name)
            raise ConfigError(f"{option} means nothing with {kind}")


def _slo(flags: Mapping[str, Any]) -> Slo:
    from everystep.analysis.outcome import Slo

    slo = Slo(flags["slo_ttft_p99"], flags["slo_tpot_p99"], flags["slo_e2e_p99"])
    if slo == Slo():
        raise ConfigError("give an objective: --slo-ttft-p99, --slo-tpot-p99 or --slo-e2e-p99")
    return slo


def _load(flags: Mapping[str, Any]) -> tuple[LoadShape, float]:
    """The load's shape, and the rate that is offered in all."""
    from everystep.analysis.capacity_load import load_shape, rate_of
    from everystep.analysis.traces import read_trace

    if flags["trace"] is None:
        return _made_up(flags), flags["rate"]
    scale = flags["length_scale"]
    arrivals = read_trace(flags["trace"], length_scale=scale, max_requests=flags["max_requests"])
    words = f"trace {flags['trace'].name}" + (f", lengths × {scale:g}" if scale != 1.0 else "")
    return load_shape([arrivals], words), flags["rate"] or rate_of(arrivals)


def _made_up(flags: Mapping[str, Any]) -> LoadShape:
    from everystep.analysis.arrivals import parse_arrivals
    from everystep.analysis.capacity_load import drawn_shape
    from everystep.analysis.lengths import parse_lengths

    prompt, output = parse_lengths(flags["prompt_tokens"]), parse_lengths(flags["output_tokens"])
    num = flags["num_requests"] or min(MOST, max(FEWEST, round(TOKENS_A_DRAW / output.mean())))
    seeds = range(flags["seed"], flags["seed"] + flags["num_draws"])
    return drawn_shape(parse_arrivals(flags["arrivals"]), prompt, output, num, seeds, flags["arrivals"])


def _settings(calibrated: Calibration, flags: Mapping[str, Any]) -> Settings:
    """The calibrated server's settings under the variables' under the flags'."""
    variables = {name: given.value for name, given in read_environment(os.environ).items() if name in BATCH_SETTINGS}
    return load_settings({**calibrated.batch, **variables, **given_flags(flags)})


def _what_ifs(calibrated: Calibration, settings: Settings, policy: str, words: tuple[str, ...]) -> list[Change]:
    """Rows that somebody asked for, each one setting changed."""
    from everystep.analysis.capacity_cases import Case, Change

    changes = []
    for word in words:
        name, equals, value = word.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in BATCH_SETTINGS:
            raise ConfigError(f"--what-if {word!r}: give SETTING=VALUE, SETTING one of {', '.join(BATCH_SETTINGS)}")
        changed = load_settings({**settings.model_dump(exclude_unset=True), name: value})
        changes.append(Change(f"{name}={value}", Case(changed, policy, calibrated.machine(changed))))
    return changes
