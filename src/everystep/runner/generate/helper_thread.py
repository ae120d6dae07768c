"""A thread that does one job after another until it is closed.

Owns the thread.  Ignorant of what the jobs are.  One for the runner's life: OpenMP keeps a pool of threads for each
thread that computes, and making them anew would cost every round.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

Job = Callable[[], object]


class HelperThread:
    """A daemon, unlike an executor's threads: a process that forgets to close it can still exit."""

    def __init__(self, name: str, begin: Job) -> None:
        """``begin`` is the thread's first job."""
        self._jobs: SimpleQueue[tuple[Job, Future[object]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()
        self.call(begin)

    def start(self, job: Job) -> Future[object]:
        """Do the job after those before it."""
        future: Future[object] = Future()
        self._jobs.put((job, future))
        return future

    def call(self, job: Job) -> None:
        """Do the job now and wait for its end; what it raises is raised here."""
        self.start(job).result()

    def close(self) -> None:
        """End when the jobs are done."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, future = item
            try:
                future.set_result(job())
            except BaseException as error:  # belongs to whoever asked for the job
                future.set_exception(error)
            del item, job, future  # a waiting thread keeps nothing of the job alive
