"""Looking again and again: the loop, the terminal, and how it is left.

Owns the pause between two looks, the alternate screen, and that the terminal is as before afterwards.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from everystep.errors import ConfigError
from everystep.top.looks import Looks, looks_of
from everystep.top.screen import picture
from everystep.top.server import Server, ServerRefuses, ServerSilent
from everystep.top.watch import Watch

END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Top:
    """One server in one terminal.  ``policies``: only these lanes; none: all."""

    def __init__(self, server: Server, policies: Sequence[str], interval_s: float, console: Console) -> None:
        self._server = server
        self._watch = Watch(server)
        self._policies = policies
        self._interval_s = interval_s
        self._console = console
        self._looks: Looks = looks_of(console)

    def run(self, *, is_once: bool) -> None:
        """Until Ctrl-C, or once where nobody watches.  Raises for a server that doesn't answer the first time."""
        self._watch.look()
        self._check_policies()
        if is_once or not self._console.is_terminal or self._console.is_dumb_terminal:
            self._console.print(self._drawn(None))
            return
        with _ended_by_signals(), Live(console=self._console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(self._drawn(self._console.height), refresh=True)
                time.sleep(self._interval_s)
                self._look_again()

    def _check_policies(self) -> None:
        assert self._watch.figures is not None
        known = self._watch.figures.lanes
        for policy in self._policies:
            if policy not in known:
                raise ConfigError(f"--lane: {policy!r} is none of {', '.join(known)}")

    def _look_again(self) -> None:
        try:
            self._watch.look()
        except (ServerSilent, ServerRefuses) as error:
            self._watch.silence = error.message

    def _drawn(self, height: int | None) -> Group:
        lines = picture(self._watch, self._server.url, self._policies, self._console.width, height, self._looks)
        for line in lines:
            line.no_wrap = True
            line.overflow = "crop"
        return Group(*lines) if lines else Group(Text())


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Whoever ends us otherwise than by Ctrl-C leaves a terminal behind that is as it was, too."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in END_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
