"""What goes wrong with the hub, in one line that says what to do.

Owns the words.  Ignorant of what was being fetched.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from everystep.checkpoint.resumed_download import BrokenOff
from everystep.errors import ModelError

SIGN_IN = "set HF_TOKEN, or run `hf auth login`"
AGAIN = "the same command goes on where it stopped"


class Unreachable(ModelError):
    """Nobody answered, or nobody was to be asked: the cache may do."""


@contextmanager
def hub_words(name: Any) -> Iterator[None]:
    """Every error of the hub's client as a :class:`ModelError`."""
    try:
        yield
    except ModelError:
        raise
    except KeyboardInterrupt as error:
        raise ModelError(f"the download of {name} was interrupted; {AGAIN}") from error
    except BrokenOff as error:
        raise ModelError(f"the download of {name} failed: {error}; {AGAIN}") from error
    except Exception as error:  # the client raises two dozen kinds
        raise _in_words(error, name) from error


def _in_words(error: Exception, name: Any) -> ModelError:
    from huggingface_hub import errors

    if isinstance(error, errors.OfflineModeIsEnabled):
        return Unreachable(f"{name} isn't in the hub's cache, and HF_HUB_OFFLINE forbids to fetch it")
    if isinstance(error, errors.HfHubHTTPError):
        return _of_answer(error, name)
    if isinstance(error, errors.HFValidationError):
        return ModelError(f"{name} is no hub id: {_first_line(error)}")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ModelError(f"the download of {name} failed: the disk is full; with room for it, {AGAIN}")
    if any(kind.__name__ == "TransportError" for kind in type(error).__mro__) or isinstance(error, ConnectionError):
        from huggingface_hub import constants

        return Unreachable(f"can't fetch {name}: the hub ({constants.ENDPOINT}) can't be reached: {_first_line(error)}")
    return ModelError(f"can't fetch {name} from the hub: {_first_line(error)}")


def _of_answer(error: Any, name: Any) -> ModelError:
    """An HTTP status with the hub's own distinctions."""
    from huggingface_hub import constants, errors

    status = error.response.status_code
    if isinstance(error, errors.GatedRepoError):
        page = f"{constants.ENDPOINT}/{str(name).partition('@')[0]}"
        return ModelError(f"{name} is gated: accept its terms at {page}, then {SIGN_IN}")
    if isinstance(error, errors.RevisionNotFoundError):
        return ModelError(f"the hub has no revision of the name in {str(name)!r}")
    if isinstance(error, errors.RepositoryNotFoundError):
        return ModelError(f"the hub shows no model {str(name)!r}: the name is wrong, or it is private ({SIGN_IN})")
    if status == 401:
        return ModelError(f"the hub doesn't accept the token sent for {name}: {SIGN_IN}")
    if status == 403:
        return ModelError(f"the token may not read {name}: {SIGN_IN} with one that may")
    if status == 429:
        return ModelError(f"the hub has had too many requests to give {name} now; later {AGAIN}")
    if status >= 500:
        return Unreachable(f"the hub failed to give {name} (status {status}); later {AGAIN}")
    return ModelError(f"can't fetch {name} from the hub: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
