"""A calibration: one server on one machine, as a file that simulations start from.

Owns the file's form and its way into the simulator.  Ignorant of how it was measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from everystep.analysis.cost import CalibrationFailed, CostModel, Fit
from everystep.analysis.simulator import Machine
from everystep.config import Settings
from everystep.errors import ConfigError

SCHEMA = 1
GIB = 2**30


class FitFigures(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How well the cost explains its own steps; see :class:`everystep.analysis.cost.Fit`."""

    num_steps: int
    num_outliers: int
    r_squared: float
    residual_s: dict[str, float]
    relative_residual: dict[str, float]


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Times in seconds.  ``batch`` are the server's settings that decide schedules, by their names in Settings."""

    schema: int = SCHEMA
    model: str
    runner: str
    precision: str
    num_threads: int
    block_size: int  # tokens
    num_blocks: int
    kv_block_bytes: int
    max_model_len: int
    batch: dict[str, Any]
    coefficients: dict[str, float]  # seconds by feature
    fit: FitFigures
    submit_s: float  # from a client's send until the engine can seat the sequence
    deliver_s: float  # from a step's end until the client has its token
    environment: dict[str, Any]

    @property
    def cost(self) -> CostModel:
        return CostModel(self.coefficients)

    def settings(self) -> Settings:
        """The server's, as far as they decide schedules."""
        return Settings(**self.batch)

    def machine(self, settings: Settings | None = None, *, is_one_request: bool = False, **changes: Any) -> Machine:
        """What the simulator needs beside a load.

        ``settings`` that ask for another cache or context than was calibrated get it; ``changes`` are fields of
        :class:`Machine` and win; a context longer than the calibrated server's is a :class:`ConfigError`.
        ``is_one_request``: the load's prompts come in one request, as closed loads do.
        """
        fields: dict[str, Any] = {
            "step_s": self.cost.in_order(is_one_request=is_one_request),
            "num_blocks": self.num_blocks,
            "block_size": self.block_size,
            "max_model_len": self.max_model_len,
            "submit_s": self.submit_s,
            "deliver_s": self.deliver_s,
        }
        if settings is not None and settings.kv_cache_gib is not None:
            fields["num_blocks"] = max(1, int(settings.kv_cache_gib * GIB) // self.kv_block_bytes)
        if settings is not None and settings.max_model_len is not None:
            fields["max_model_len"] = self._within(settings.max_model_len)
        return Machine(**(fields | changes))

    def _within(self, max_model_len: int) -> int:
        if max_model_len > self.max_model_len:
            raise ConfigError(
                f"max_model_len={max_model_len} is over the {self.max_model_len} of the server that was calibrated",
                param="max_model_len",
            )
        return max_model_len


def figures_of(fit: Fit) -> FitFigures:
    """The part of a fit that isn't the cost itself."""
    return FitFigures(
        num_steps=fit.num_steps,
        num_outliers=fit.num_outliers,
        r_squared=fit.r_squared,
        residual_s=dict(fit.residual_s),
        relative_residual=dict(fit.relative_residual),
    )


def save_calibration(calibration: Calibration, path: Path) -> None:
    """As JSON that a person can read, coefficients included."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(calibration), indent=1) + b"\n")


def load_calibration(path: Path) -> Calibration:
    """Raises :class:`ConfigError` for a file that isn't there, isn't a calibration, or isn't of this schema."""
    try:
        raw = msgspec.json.decode(path.read_bytes())
        schema = raw.get("schema") if isinstance(raw, dict) else None
        if schema != SCHEMA:
            raise ConfigError(f"{path}: schema {schema!r} isn't {SCHEMA}: calibrate anew", param="calibration")
        calibration = msgspec.convert(raw, Calibration)
        calibration.settings(), calibration.cost  # both refuse what they don't know
    except OSError as error:
        raise ConfigError(f"can't read {path}: {error.strerror}", param="calibration") from error
    except (msgspec.DecodeError, ValueError, CalibrationFailed) as error:
        words = " ".join(str(error).split())
        raise ConfigError(f"{path} is no calibration: {words:.300}", param="calibration") from error
    return calibration
