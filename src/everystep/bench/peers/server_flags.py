"""Settings as flags of ``everystep serve``.

Owns what is handed on to a server that is started for a benchmark, and what isn't.
"""

from __future__ import annotations

from everystep.config import Settings
from everystep.settings_sources import flag_name

# Not a server's business, or the benchmark's own choice.
NOT_PASSED_ON = {
    "host",
    "port",
    "log_level",
    "log_json",
    "api_key",
    "api_key_file",
    "insecure_no_auth",
    "default_policy",
}
OF_VLLM = {"vllm_python", "vllm_url", "vllm_arg"}  # only where vLLM is wanted
SECRETS = {"vllm_api_key"}  # a variable: everybody on the machine can read a command line
ABSENT_IN_PEERS = {"runner", "precision", "deterministic", "device"}  # chosen for our own lanes


def server_flags(settings: Settings, *, without: set[str] | None = None, with_vllm: bool = False) -> list[str]:
    """Flags of ``everystep serve`` for every setting that isn't its default."""
    kept_back = NOT_PASSED_ON | SECRETS | (without or set()) | (set() if with_vllm else OF_VLLM)
    flags = []
    for name in sorted(type(settings).model_fields.keys() - kept_back):
        value = getattr(settings, name)
        if value == type(settings).model_fields[name].default:
            continue
        if isinstance(value, bool):
            flags.append(flag_name(name if value else f"no_{name}"))
        else:
            values = value if isinstance(value, tuple) else (value,)
            flags += [f"{flag_name(name)}={each}" for each in values]
    return flags
