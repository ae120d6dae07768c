"""Write docs/options.md from the fields of Settings: ``make options``.

Owns the table's form.  A test compares the file with what this makes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args, get_origin

from everystep.config import Settings
from everystep.flags import METAVARS, default_text, value_type
from everystep.settings_sources import flag_name, is_switch, variable_name

HEAD = """\
# Options

Every option of `everystep serve` is a flag, an environment variable and a key of a TOML file (`--config
everystep.toml`, or `EVERYSTEP_CONFIG`). A flag goes before a variable, a variable before the file. Unknown keys and
unknown `EVERYSTEP_*` variables are refused, and so are options whose part isn't installed: nothing is accepted and then
ignored.

```toml
# everystep.toml
model = "smollm2-135m"
port = 9000
max_num_seqs = 32
max_num_batched_tokens = 256
prefix_cache = false
api_key = ["first", "second"]
```

A switch is turned off by its opposite: `--no-prefix-cache`, `EVERYSTEP_NO_PREFIX_CACHE=1`, `no_prefix_cache = true`;
or by `EVERYSTEP_PREFIX_CACHE=false`, `prefix_cache = false`. Several API keys are one flag each, a comma between them
in the variable, an array in the file. In Python the keys are arguments: `LLM("smollm2-135m", prefix_cache=False)`.

This file is made from the settings themselves by `make options`.

| flag | variable | key | default | meaning |
|---|---|---|---|---|
"""


def main() -> None:
    Path(__file__).with_name("options.md").write_text(render(), encoding="utf-8")


def render() -> str:
    """The whole file."""
    return HEAD + "".join(map(_row, Settings.model_fields))


def _row(field: str) -> str:
    default = default_text(field)
    cells = [
        f"`{_flag(field)}`",
        f"`{variable_name(field)}`",
        f"`{field}`",
        f"`{default}`" if default else "",
        Settings.model_fields[field].description or "",
    ]
    return "| " + " | ".join(cells) + " |\n"


def _flag(field: str) -> str:
    if is_switch(field):
        return flag_name(f"no_{field}" if Settings.model_fields[field].default else field)
    kind = value_type(Settings.model_fields[field].annotation)
    shown = "\\|".join(get_args(kind)) if get_origin(kind) is Literal else METAVARS[kind]
    return f"{flag_name(field)} {shown}"


if __name__ == "__main__":
    main()
