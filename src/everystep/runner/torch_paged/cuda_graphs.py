"""Decode steps as CUDA graphs: captured once for some batch sizes, replayed with whatever rows fit.

Owns which shapes are captured, the memory that graphs read, and the choice among them.  Ignorant of models: it is
handed a forward pass.  Steps that aren't all decode, or that no graph has room for, stay with the caller.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from everystep.runner.torch_paged.device_inputs import HostStep, StepShape
from everystep.runner.torch_paged.step_batch import StepBatch

logger = logging.getLogger(__name__)

FIRST_CONTEXT = 128
CONTEXT_STEP = 4  # each room for contexts is so many times the one before
MAX_ROOM_TOKENS = 2**18  # rows x context of a graph whose work grows with its room
WARM_PASSES = 2  # libraries set themselves up in the first

Forward = Callable[[StepBatch], Tensor]
Replay = Callable[[], Tensor]
Capture = Callable[[Callable[[], Tensor]], Replay]


def batch_sizes(max_rows: int) -> list[int]:
    """1, 2, 4, then steps of 8 to 64, of 32 to 256, of 128 beyond; ``max_rows`` is the last."""
    sizes = [1, 2, 4, *range(8, 64, 8), *range(64, 256, 32), *range(256, max_rows, 128)]
    return [*(size for size in sizes if size < max_rows), max_rows]


def context_rooms(max_context_len: int, grows_with_room: bool) -> list[int]:
    """The longest contexts that graphs have room for; one is enough where a kernel's work doesn't grow with it."""
    rooms = [max_context_len]
    room = FIRST_CONTEXT
    while grows_with_room and room < max_context_len:
        rooms.append(room)
        room *= CONTEXT_STEP
    return sorted(rooms)


@dataclass(frozen=True, slots=True)
class Room:
    """What one graph can take."""

    num_rows: int
    max_context_len: int


class DecodeGraphs:
    """Graphs by room.  ``capture`` turns a function into its replay: :func:`capture_on_cuda`, or a stand-in."""

    def __init__(self, forward: Forward, device: torch.device, block_size: int, capture: Capture) -> None:
        self._forward = forward
        self._device = device
        self._block_size = block_size
        self._capture = capture
        self._memory = torch.empty(0, dtype=torch.uint8)  # what all graphs read: one at a time runs
        self._replays: dict[Room, Replay] = {}
        self._row_counts: list[int] = []
        self._contexts: list[int] = []

    def __len__(self) -> int:
        return len(self._replays)

    def capture_all(self, max_rows: int, max_context_len: int, grows_with_room: bool, padding: HostPadding) -> None:
        """From the largest to the smallest, so that the later find their memory in what the first has taken.

        A model that can't be captured, as it looks at a tensor on its way, is served step by step: said once.
        """
        self._row_counts = batch_sizes(max_rows)
        self._contexts = context_rooms(max_context_len, grows_with_room)
        rooms = [Room(rows, context) for context in reversed(self._contexts) for rows in reversed(self._row_counts)]
        if grows_with_room:
            rooms = [room for room in rooms if room.num_rows * room.max_context_len <= MAX_ROOM_TOKENS]
        most = max((self.shape(room).num_bytes for room in rooms), default=0)
        self._memory = torch.empty(most, dtype=torch.uint8, device=self._device)
        for room in rooms:
            try:
                self._replays[room] = self._captured(self.shape(room), padding(self.shape(room)))
            except RuntimeError as error:
                logger.warning("no CUDA graph of %s: %s; its steps run one kernel at a time", room, error)
                self._replays.clear()
                return

    def room_for(self, num_rows: int, max_context_len: int) -> Room | None:
        """The least graph with room for so many rows and so long a context."""
        rows = bisect_left(self._row_counts, num_rows)
        context = bisect_left(self._contexts, max_context_len)
        if rows == len(self._row_counts) or context == len(self._contexts):
            return None
        room = Room(self._row_counts[rows], self._contexts[context])
        return room if room in self._replays else None

    def shape(self, room: Room) -> StepShape:
        """The inputs that the room's graph reads."""
        return StepShape(
            num_tokens=room.num_rows,
            num_rows=room.num_rows,
            num_samples=room.num_rows,
            table_width=-(-room.max_context_len // self._block_size),
            max_query_len=1,
            max_context_len=room.max_context_len,
        )

    def run(self, room: Room, step: HostStep) -> Tensor:
        """Logits ``[rows of the room, vocab]``; they stay until the next run.  ``step`` has the room's shape."""
        step.into(self._memory)
        return self._replays[room]()

    def clear(self) -> None:
        """Forget the graphs, and with them their memory."""
        self._replays.clear()

    def _captured(self, shape: StepShape, padding: HostStep) -> Replay:
        padding.into(self._memory)
        batch = shape.batch(self._memory)

        def compute() -> Tensor:
            return self._forward(replace(batch))  # a new one each time: kernels keep what they made of the last

        for _ in range(WARM_PASSES):
            compute()
        return self._capture(compute)


HostPadding = Callable[[StepShape], HostStep]  # a step of padding rows alone


class CudaCapture:
    """Captures on a stream of its own, all graphs into one pool of memory."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()

    def __call__(self, compute: Callable[[], Tensor]) -> Replay:
        torch.cuda.synchronize()
        before = torch.cuda.current_stream()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                logits = compute()
        finally:
            torch.cuda.set_stream(before)  # torch leaves its own stream in place where a capture fails

        def replay() -> Tensor:
            graph.replay()
            return logits

        return replay
