"""``everystep simulate``: its flags.

Owns what may be asked for and what goes together.  Ignorant of how anything is simulated.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from click.core import ParameterSource

from everystep.cli_bench import NumberList, Positive
from everystep.config import PolicyName, Settings
from everystep.errors import ConfigError, UnsupportedOption
from everystep.flags import given_flags, setting_flags
from everystep.settings_sources import load_settings, read_environment

if TYPE_CHECKING:
    from everystep.analysis.outcome import Slo
    from everystep.bench.forecast import NamedLoad

DEFAULT_POLICIES = "static,per_token,continuous"
WHAT_IF_SETTINGS = [
    "max_num_seqs", "max_num_batched_tokens", "kv_cache_gib", "max_model_len", "prefix_cache", "static_batch_size",
    "static_max_batch_tokens", "static_max_wait", "per_token_batch_size", "per_token_max_batch_tokens",
    "max_queue", "max_queue_tokens",
]  # fmt: skip
# Flags that a kind of load has no use for, by the parameter's name.
IDLE_FLAGS = {
    "-n": ("arrivals", "num_requests", "time_scale", "length_scale", "max_requests"),
    "--rate": ("time_scale", "length_scale", "max_requests"),
    "--trace": ("arrivals", "num_requests", "prompt_tokens", "output_tokens", "seed"),
}


class RateList(click.ParamType[tuple[float, ...]]):
    """``0.5,1,2``: finite numbers above 0."""

    name = "R,R,…"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        try:
            rates = tuple(float(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} isn't a list of numbers such as 0.5,1,2", param, context)
        for rate in rates:
            if not (rate > 0 and math.isfinite(rate)):
                self.fail(f"{rate:g}: requests a second must be above 0", param, context)
        return rates


@click.command()
@click.option(
    "--calibration", type=click.Path(path_type=Path), required=True, metavar="FILE.json",
    help="made by everystep bench --calibrate",
)  # fmt: skip
@click.option("--policy", "policies", default=DEFAULT_POLICIES, show_default=True, metavar="P,P,…", help="lanes")
@click.option("-n", "sizes", type=NumberList(), help="a closed load: so many prompts at once")
@click.option("--rate", "rates", type=RateList(), help="an open load: requests a second; a trace is scaled to it")
@click.option("--arrivals", default="poisson", show_default=True, metavar="poisson|constant|burst:SIZE")
@click.option("--requests", "num_requests", type=click.IntRange(1), metavar="N", help="per rate  [default: a minute's]")
@click.option("--trace", type=click.Path(path_type=Path), metavar="FILE", help="recorded arrivals: JSON lines or CSV")
@click.option("--time-scale", type=Positive(), default=1.0, metavar="F", help="a trace's times: 2 is half the rate")
@click.option("--length-scale", type=Positive(), default=1.0, metavar="F", help="a trace's prompts and answers")
@click.option("--max-requests", type=click.IntRange(1), metavar="N", help="a trace's first")
@click.option("--prompt-tokens", default="6", metavar="DIST", help="a prompt's  [default: 6; with --rate 128]")
@click.option(
    "--output-tokens", default="20", show_default=True, metavar="DIST",
    help="an answer's: 20, uniform:LOW,HIGH or lognormal:MEDIAN,SIGMA[,MAX]",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="of the load")
@click.option("--slo-ttft", type=Positive(), metavar="S", help="a good request's time to first token, at most")
@click.option("--slo-tpot", type=Positive(), metavar="S", help="a good request's time per further token, at most")
@click.option("--slo-e2e", type=Positive(), metavar="S", help="a good request's whole time, at most")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="write simulate.json there")
@click.option("--json", "as_json", is_flag=True, help="print the result instead of tables")
@setting_flags(WHAT_IF_SETTINGS)
@click.pass_context
def simulate(context: click.Context, /, calibration: Path, out: Path | None, as_json: bool, **flags: Any) -> None:
    """Predict what a load would meet: the server's own policies on a virtual clock.

    The load is -n, --rate or --trace. The server is as it was calibrated; settings given here are what-ifs.
    """
    _refuse_idle_flags(context, _kind(flags))
    from everystep.analysis.calibration import load_calibration
    from everystep.bench.forecast import Forecast, write_forecast
    from everystep.bench.forecast_tables import tables
    from everystep.bench.terminal import Bar, show

    one, policies, slo = load_calibration(calibration), _policies(flags["policies"]), _slo(flags)
    about, loads = _loads(context, flags, slo)
    forecast = Forecast(one, _what_if(one.batch, flags), policies, loads, slo, about)
    with Bar() as bar:
        bar.total(len(policies) * len(loads))
        result = forecast.run(bar.turn)
    written = () if out is None else (f"written: {write_forecast(result, out)}",)
    if as_json:
        print(json.dumps(result, indent=1, ensure_ascii=False))
        return
    show(tables(result))
    for line in (*result["notes"], *written):
        print(line)


def _kind(flags: Mapping[str, Any]) -> str:
    """The flag that says what the load is.  A trace may be scaled to a rate; else only one of the three is given."""
    given = [name for name, flag in (("-n", "sizes"), ("--rate", "rates"), ("--trace", "trace")) if flags[flag]]
    if given == ["--rate", "--trace"]:
        return "--trace"
    if len(given) != 1:
        raise ConfigError(f"give one load: -n, --rate or --trace (given: {', '.join(given) or 'none'})")
    return given[0]


def _refuse_idle_flags(context: click.Context, kind: str) -> None:
    """A flag that would change nothing is a mistake of somebody's."""
    for name in IDLE_FLAGS[kind]:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            (option,) = (param.opts[0] for param in context.command.params if param.name == name)
            raise ConfigError(f"{option} means nothing with {kind}")


def _policies(words: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in words.split(",")))
    for name in names:
        if name == "vllm":
            raise UnsupportedOption("--policy vllm: it schedules for itself, and isn't simulated")
        if name not in get_args(PolicyName):
            raise ConfigError(f"--policy: {name!r} is none of {DEFAULT_POLICIES.replace(',', ', ')}")
    return names


def _slo(flags: Mapping[str, Any]) -> Slo | None:
    from everystep.analysis.outcome import Slo

    slo = Slo(flags["slo_ttft"], flags["slo_tpot"], flags["slo_e2e"])
    return None if slo == Slo() else slo


def _loads(
    context: click.Context, flags: Mapping[str, Any], slo: Slo | None
) -> tuple[dict[str, object], tuple[NamedLoad, ...]]:
    """The load in the words of the result file, and as arrivals."""
    from everystep.analysis.lengths import parse_lengths
    from everystep.analysis.outcome import Slo
    from everystep.bench.forecast import closed_loads, open_loads
    from everystep.bench.open_order import OpenOrder

    lengths = {name: flags[name] for name in ("prompt_tokens", "output_tokens")}
    if flags["sizes"]:
        prompt, output = (parse_lengths(words) for words in lengths.values())
        return {"n": list(flags["sizes"]), **lengths, "seed": flags["seed"]}, closed_loads(
            flags["sizes"], prompt, output, flags["seed"]
        )
    if context.get_parameter_source("prompt_tokens") is ParameterSource.DEFAULT:
        lengths["prompt_tokens"] = OpenOrder.prompt_tokens
    names = ("arrivals", "num_requests", "time_scale", "length_scale", "max_requests", "seed")
    order = OpenOrder(
        rates=flags["rates"] or (),
        dataset="fixed" if flags["trace"] is None else str(flags["trace"]),
        slo=slo or Slo(),
        **lengths,
        **{name: flags[name] for name in names},
    )
    return order.as_settings(), open_loads(order)


def _what_if(calibrated: Mapping[str, Any], flags: dict[str, Any]) -> Settings:
    """The calibrated server's settings under the variables' under the flags'."""
    variables = {name: given.value for name, given in read_environment(os.environ).items() if name in WHAT_IF_SETTINGS}
    return load_settings({**calibrated, **variables, **given_flags(flags)})
