"""Where a benchmark writes.

Owns the making of the folder, before anything is measured that couldn't be kept.
"""

from __future__ import annotations

from pathlib import Path

from everystep.errors import ConfigError


def log_folder(out: Path) -> Path:
    """``out/logs``, made if need be.  Raises :class:`ConfigError` where it can't be."""
    logs = out / "logs"
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {out}: can't be written to: {error.strerror}") from error
    return logs
