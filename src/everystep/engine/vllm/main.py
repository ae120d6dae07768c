"""Entry point of the process that runs vLLM.

Owns its life: it ends with whoever started it, whatever happens, and takes vLLM's own processes along.  Runs in vLLM's
environment.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import msgspec

from everystep.engine.codec import encode
from everystep.engine.vllm import group
from everystep.engine.vllm.build import BadArgument, VllmEngine
from everystep.engine.vllm.group import end_group
from everystep.engine.vllm.host import Host
from everystep.engine.vllm.host_args import HostArgs
from everystep.messages import VllmLoad, WorkerFailed

CLOSING_S = 10.0


def main(fd: int) -> None:
    """Serve on the inherited socket.  The process leads a group of its own, which ends with it."""
    os.set_inheritable(fd, False)
    sock = socket.socket(fileno=fd)
    args = msgspec.json.decode(sys.stdin.buffer.read(), type=HostArgs)
    start_reaper()
    for number in (signal.SIGINT, signal.SIGTERM):  # a terminal's signals are the parent's business
        signal.signal(number, signal.SIG_IGN)
    try:
        asyncio.run(_serve(sock, args))
    except BaseException as error:
        _say_last_word(sock, error)
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        end_group(os.getpgrp())


def start_reaper() -> None:
    """A child that ends the group when we die, even if we are killed.

    It sees the end of a pipe that is never written to and has one writing end, ours.
    """
    reading, _writing = os.pipe()
    subprocess.Popen([sys.executable, "-I", "-S", group.__file__], stdin=reading)
    os.close(reading)


async def _serve(sock: socket.socket, args: HostArgs) -> None:
    hosts: list[Host] = []

    def on_load(load: VllmLoad) -> None:
        for host in hosts:
            host.take_load(load)

    is_built = threading.Event()
    watch = threading.Thread(target=_leave_if_told, args=(sock, is_built), daemon=True)
    watch.start()
    engine = VllmEngine(args, on_load)
    await engine.warm_up()
    is_built.set()
    watch.join()
    host = Host(engine, lambda: time.monotonic() - args.epoch_s, args.epoch_s)
    hosts.append(host)
    try:
        await host.run(sock, engine.info())
    finally:
        last = threading.Timer(CLOSING_S, _leave)  # whatever vLLM's own shutdown waits for
        last.daemon = True
        last.start()
        engine.close()
        last.cancel()


def _leave() -> None:
    """End all, from a thread: the loop is busy."""
    end_group(os.getpgrp())
    os._exit(1)


def _leave_if_told(sock: socket.socket, is_built: threading.Event) -> None:
    """While vLLM is built the loop can't listen.  Nothing is sent before it is ready but the order to leave."""
    while not is_built.is_set():
        if select.select([sock], [], [], 0.2)[0]:
            _leave()


def _say_last_word(sock: socket.socket, error: BaseException) -> None:
    try:
        sock.setblocking(True)
        words = str(error) if isinstance(error, BadArgument) else f"{type(error).__name__}: {error}"
        sock.sendall(encode(WorkerFailed(words)))
    except OSError as unsaid:
        print(f"nobody is left to hear: {unsaid}", file=sys.stderr)
