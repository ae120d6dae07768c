"""Open files: each connection takes one, and a server without any left can't even refuse.

Owns the bound on connections that the process can keep.  Ignorant of who connects.
"""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)

BACKLOG = 2048  # connections that the kernel holds until they are accepted
MAX_REFUSED = 64  # connections over the bound that are being told so
OTHER_FILES = 128  # pipes, model files, logs, libraries: a few dozen, and room


def room_for_connections(wanted: int) -> int:
    """Raise the soft limit on open files for ``wanted`` connections; how many there is room for, at least one."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + MAX_REFUSED + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    room = max(1, soft - MAX_REFUSED - OTHER_FILES)
    logger.warning(
        "%d open files are allowed, %d connections need %d: at most %d connections are taken "
        "(raise the limit with ulimit -n, or lower --max-connections)",
        soft, wanted, needed, room,
    )  # fmt: skip
    return room
