"""``everystep bench``: its flags.

Owns what may be asked for and what goes together.  Ignorant of how anything is measured.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everystep.config import PolicyName, Settings
from everystep.errors import ConfigError, EverystepError
from everystep.flags import given_flags, setting_flags
from everystep.settings_sources import load_settings

if TYPE_CHECKING:
    from everystep.bench.peers.lineup import Lineup

DEFAULT_POLICIES = "static,per_token,continuous"
ENGINES = ("hf-generate", "vllm", "openvino-genai")
KV_CACHE_GIB = 2.0  # several servers share the machine's memory: none may take what it finds
SHARED_SETTINGS = [
    "model", "runner", "precision", "deterministic", "device", "threads", "cache_dir", "max_model_len", "kv_cache_gib",
    "max_num_seqs", "max_num_batched_tokens", "prefix_cache", "static_batch_size", "per_token_batch_size", "api_key",
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


@click.command()
@click.option("--url", metavar="URL", help="an everystep server that runs already  [default: start one]")
@click.option(
    "--policies",
    default=DEFAULT_POLICIES,
    show_default=True,
    metavar="P,P,…",
    help="lanes of the everystep server; vllm needs --vllm-python or --vllm-url; none leaves it out",
)
@click.option("--engine", "engines", multiple=True, type=click.Choice(ENGINES), help="a peer, started if it is there")
@click.option("-n", "sizes", type=NumberList(), default="1,4,16,64", show_default=True, help="prompts sent at once")
@click.option("--repeats", type=NumberList(), default="3", show_default=True, help="rounds counted, for all N or each")
@click.option(
    "--max-tokens", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="tokens a prompt"
)
@click.option("--prompt-tokens", type=click.IntRange(1), default=6, show_default=True, metavar="N", help="a prompt's")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="of the prompts")
@click.option("--torch-python", type=click.Path(path_type=Path), help="Python with everystep[torch], for hf-generate")
@click.option("--genai-python", type=click.Path(path_type=Path), help="Python with openvino-genai")
@click.option("--genai-model", type=click.Path(path_type=Path), help="what openvino-genai reads, if not --model")
@click.option(
    "--peer-precision",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "f32", "bf16"]),
    help="of hf-generate and vllm; --precision is our own lanes'",
)
@click.option("--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True, help="folder")
@click.option("--json", "as_json", is_flag=True, help="print the result file instead of tables")
@setting_flags(SHARED_SETTINGS)
@click.pass_context
def bench(
    context: click.Context,
    /,
    sizes: tuple[int, ...],
    repeats: tuple[int, ...],
    prompt_tokens: int,
    max_tokens: int,
    seed: int,
    out: Path,
    as_json: bool,
    **flags: Any,
) -> None:
    """Measure lanes and peers in turn: N prompts at once, equal tokens for all, and write bench.json, .csv, .md.

    Only one contender works at a time. Peers that aren't installed are left out, in one line each.
    """
    settings = load_settings(given_flags(flags), os.environ)
    context.meta["everystep.debug"] = settings.log_level == "debug"
    _require_client()
    from everystep.bench.run import ClosedOrder, run
    from everystep.bench.tables import all_tables, day_line
    from everystep.bench.terminal import Bar, show

    order = ClosedOrder(sizes, _repeats(sizes, repeats), prompt_tokens, max_tokens, seed)
    lineup = _lineup(settings, max(sizes), out, flags)
    with Bar() as bar:
        result = run(lineup, order, out, bar)
    if as_json:
        print(json.dumps(result, indent=1, ensure_ascii=False))
        return
    show(all_tables(result))
    for line in (day_line(result), *result["notes"], f"written: {out}/bench.json, .csv, .md"):
        print(line)


def _require_client() -> None:
    if importlib.util.find_spec("httpx") is None:
        raise EverystepError("everystep bench needs httpx: pip install 'everystep[bench]'")


def _repeats(sizes: tuple[int, ...], repeats: tuple[int, ...]) -> tuple[int, ...]:
    if len(repeats) == 1:
        return repeats * len(sizes)
    if len(repeats) != len(sizes):
        raise ConfigError(f"--repeats has {len(repeats)} numbers, -n has {len(sizes)}: give one, or one for each N")
    return repeats


def _lineup(settings: Settings, most_prompts: int, out: Path, flags: dict[str, Any]) -> Lineup:
    from everystep.bench.peers.lineup import Lineup

    logs = out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    return Lineup(
        settings=_for_servers(settings, most_prompts),
        policies=_policies(flags["policies"]),
        engines=tuple(dict.fromkeys(flags["engines"])),
        logs=logs,
        url=flags["url"],
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
