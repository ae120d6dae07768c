"""Draws the next token of every row of a step on the device of the logits.

Owns what is queued on the device and what comes back, in one wait.  Ignorant of models and schedulers.  Order and
meaning of every parameter are those of :class:`everystep.runner.sampling.Sampler`; randomness is a function of (seed,
position) alone, so that a CPU and a GPU draw the same token from the same logits, up to the rounding of float32 sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Sized
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from everystep.runner.sampling import SampledRows
from everystep.runner.sampling.history import Histories
from everystep.runner.sampling.softmax import MIN_TEMPERATURE
from everystep.runner.torch_paged.device_copies import Arrival, to_device
from everystep.runner.torch_paged.device_draw import DeviceRecipe, Draw
from everystep.runner.torch_paged.device_edits import Edits
from everystep.runner.torch_paged.device_logprobs import Logprobs
from everystep.runner.torch_paged.device_uniforms import attempts_of
from everystep.types import Row, SampledToken

MAX_CHUNK_ELEMENTS = 2**26  # rows x vocabulary: bounds each temporary tensor of a draw to 256 MiB
MAX_BLIND_ATTEMPTS = 6
NOT_FINITE = "the model's logits aren't finite: there is no log-probability to report"


class DeviceSampler:
    """Called by one thread at a time."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self.vocab_size = vocab_size
        self.device = device
        self._histories = Histories(vocab_size)

    def sample(self, logits: Tensor, rows: Sized[Row]) -> SampledRows:
        """A token for each of ``rows``, whose logits are ``logits`` ``[rows, vocab]`` in the same order."""
        return self.launch(logits, rows).collect()

    def launch(self, logits: Tensor, rows: Sized[Row]) -> PendingSample:
        """Queue the work and return.  ``logits`` aren't changed, and must stay until :meth:`PendingSample.collect`."""
        assert logits.shape == (len(rows), self.vocab_size), f"{logits.shape=} for {len(rows)} rows"
        with torch.inference_mode():
            return self._launch(logits, rows)

    def _launch(self, logits: Tensor, rows: Sized[Row]) -> PendingSample:
        exact = logits.float()
        edits = Edits.of(rows, self._histories, self.vocab_size)
        edited = exact if edits is None else edits.apply(exact)
        token_ids = edited.argmax(dim=1)  # the first NaN if there is one, else the lowest id among equals
        tops = edited.gather(1, token_ids[:, None]).squeeze(1)
        drawn = [i for i, row in enumerate(rows) if not row.sequence.params.is_greedy]
        size = max(1, MAX_CHUNK_ELEMENTS // self.vocab_size)
        draws = [_Drawing.begin(edited, rows, drawn[at : at + size]) for at in range(0, len(drawn), size)]
        return PendingSample(exact, rows, token_ids, tops, draws)


@dataclass(slots=True)
class _Drawing:
    """The draws of some of a step's rows, between the first attempts and the last."""

    indices: list[int]
    rows: Sized[Row]  # those at the indices
    draw: Draw
    num_attempts: int

    @classmethod
    def begin(cls, edited: Tensor, rows: Sized[Row], indices: list[int]) -> _Drawing:
        chosen = [rows[i] for i in indices]
        is_whole = len(indices) == len(rows)
        logits = edited if is_whole else edited[to_device(np.array(indices, np.int64), edited.device)]
        num_attempts = _blind_attempts(chosen)
        table = to_device(np.concatenate([_parameters(chosen), _chances(chosen, 0, num_attempts)]), edited.device)
        recipe = DeviceRecipe(
            scales=table[0].float(),
            distances=table[1],
            top_ks=table[2].long(),
            top_ps=table[3],
            max_top_k=max(row.sequence.params.top_k for row in chosen),
        )
        drawing = cls(indices, chosen, Draw.begin(logits, recipe), 0)
        drawing.go_on(table[4:].view(num_attempts, 2, len(chosen)))
        return drawing

    def go_on(self, chances: Tensor) -> None:
        """One attempt for each of ``chances`` ``[attempts, 2, rows]``."""
        for pair in chances:
            self.draw = self.draw.attempt(pair)
            self.num_attempts += 1

    def finish(self) -> None:
        """Attempts until no row is open, with a look after each: the rare end of a draw."""
        while bool(self.draw.is_open.any()):
            chances = _chances(self.rows, self.num_attempts, 1)
            self.go_on(to_device(chances, self.draw.tokens.device).view(1, 2, -1))


@dataclass(slots=True)
class PendingSample:
    """Tokens on their way from the device."""

    logits: Tensor  # [rows, vocab] f32, the model's own
    rows: Sized[Row]
    token_ids: Tensor  # [rows] int64
    tops: Tensor  # [rows] f32: each row's largest logit after edits
    draws: list[_Drawing]
    _host: tuple[Tensor, ...] = field(init=False)  # token ids, tops, whether each drawing has open rows
    _asked: list[int] = field(init=False)  # rows that want logprobs
    _logprobs: Logprobs | None = field(init=False)
    _arrival: Arrival = field(init=False)

    def __post_init__(self) -> None:
        self._asked = [i for i, row in enumerate(self.rows) if row.sequence.params.logprobs is not None]
        self._send()

    def collect(self) -> SampledRows:
        """Wait for the device, once, and read."""
        self._arrival.wait()
        is_open = [bool(flag) for flag in self._host[2:]]
        if any(is_open):
            with torch.inference_mode():
                self._finish()
        return self._read()

    def _finish(self) -> None:
        for drawing in self.draws:
            drawing.finish()
        self._send()
        self._arrival.wait()

    def _send(self) -> None:
        """Queue the copies to the host."""
        for drawing in self.draws:
            if len(drawing.indices) == len(self.rows):
                self.token_ids = drawing.draw.tokens
            else:
                self.token_ids[to_device(np.array(drawing.indices, np.int64), self.tops.device)] = drawing.draw.tokens
        flags = [drawing.draw.is_open.any() for drawing in self.draws]
        self._host = tuple(part.to("cpu", non_blocking=True) for part in (self.token_ids, self.tops, *flags))
        self._logprobs = self._launch_logprobs()
        self._arrival = Arrival(self.tops.device)

    def _num_top(self) -> list[int]:
        return [row.sequence.params.logprobs for row in self.rows if row.sequence.params.logprobs is not None]

    def _launch_logprobs(self) -> Logprobs | None:
        if not self._asked:
            return None
        indices = to_device(np.array(self._asked, np.int64), self.tops.device)
        return Logprobs.of(self.logits[indices], self.token_ids[indices], max(self._num_top())).to_host()

    def _read(self) -> SampledRows:
        token_ids = self._host[0].numpy()
        tops = self._host[1].numpy()
        if self._logprobs is None and np.isfinite(tops).all():  # nearly every step, and steps have many rows
            pairs = zip(self.rows, token_ids.tolist(), strict=True)
            return SampledRows({row.sequence.sequence_id: SampledToken(token_id) for row, token_id in pairs})
        tokens = dict(enumerate(map(SampledToken, token_ids.tolist())))
        errors = {int(i): _failure(float(tops[i])) for i in np.flatnonzero(~np.isfinite(tops))}
        if self._logprobs is not None:
            reported = self._logprobs.tokens(token_ids[self._asked], self._num_top())
            for i, token in zip(self._asked, reported, strict=True):
                if token is not None:
                    tokens[i] = token
                else:
                    errors.setdefault(i, NOT_FINITE)
        ids = [row.sequence.sequence_id for row in self.rows]
        return SampledRows(
            {ids[i]: token for i, token in tokens.items() if i not in errors},
            {ids[i]: message for i, message in errors.items()},
        )


def _blind_attempts(rows: Sized[Row]) -> int:
    """Attempts after which a row is hardly ever open: a refusal leaves on average half of the excess over top_p."""
    least = min(row.sequence.params.top_p for row in rows)
    return 1 if least >= 1.0 else min(MAX_BLIND_ATTEMPTS, 3 + math.ceil(-math.log(least)))


def _parameters(rows: Sized[Row]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """``[4, rows]``: scale, distance of min_p, top_k, top_p."""
    every = [row.sequence.params for row in rows]
    temperatures = np.array([params.temperature for params in every], np.float64)
    min_ps = np.array([params.min_p for params in every], np.float64)
    with np.errstate(divide="ignore"):  # log(0) = -inf is min_p's being off
        distances = temperatures * np.log(min_ps)
    scales = (1.0 / np.maximum(temperatures, MIN_TEMPERATURE)).astype(np.float32)
    top_ks = [params.top_k for params in every]
    top_ps = [params.top_p for params in every]
    return np.array([scales, distances, top_ks, top_ps], np.float64)


def _chances(rows: Sized[Row], first: int, num_attempts: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """``[2 · attempts, rows]``: what the next token of each row is drawn with."""
    seeds = np.array([row.sequence.seed for row in rows], np.uint64)
    positions = np.array([row.sequence.num_tokens for row in rows], np.uint64)
    return attempts_of(seeds, positions, first, num_attempts).reshape(2 * num_attempts, -1)


def _failure(top: float) -> str:
    if top == -np.inf:
        return "no token can be drawn: every logit is -inf, by bans or by the model"
    return f"no token can be drawn: the largest logit is {top}"
