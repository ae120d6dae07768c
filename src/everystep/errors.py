"""Every error a user can meet, and the one table that gives each its HTTP status.

Owns the exception tree.  Ignorant of HTTP libraries: a status here is a number.

::

    EverystepError
    ├── InvalidRequest            400  the request can't be served as it stands
    │   ├── InvalidParameter      400  a parameter is out of its range
    │   ├── UnsupportedOption     400  a known option that this server doesn't do
    │   ├── PromptTooLong         400  context or KV cache can't hold it, ever
    │   └── MalformedBody         422  the body isn't what the endpoint takes
    ├── AuthenticationFailed      401
    ├── NotFound                  404  route, model, request
    ├── ClientTooSlow             408  the request took too long to arrive
    ├── BodyTooLarge              413
    ├── QueueFull                 429  try again after ``retry_after_s``
    ├── HeadersTooLarge           431  the request's line and headers are over the limit
    ├── ClientGone                499  the client left before the answer
    ├── EngineUnavailable         503  starting, draining, restarting, or absent
    │   ├── QueueTimeout          503  waited too long for a seat
    │   └── TooManyConnections    503
    ├── RequestTimeout            504  the whole request took too long
    ├── EngineFailed              500  the forward pass or its process died
    │   └── SchedulerStuck        500  sequences wait and no lane plans a step
    ├── ConfigError                –   a setting is wrong; the command exits with 2
    └── ModelError                 –   a model file is missing, corrupt or unsupported; exits with 1
        └── UnsupportedModel       –   a sound model of a kind that this runner doesn't compute
"""

from __future__ import annotations


class EverystepError(Exception):
    """Base of all; ``message`` is one line for people, ``param`` names the culprit if one exists."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class InvalidRequest(EverystepError):
    """The request can't be served as it stands."""


class InvalidParameter(InvalidRequest):
    """A parameter is out of its range; the message names the value and the limit."""


class UnsupportedOption(InvalidRequest):
    """The option is known, but this server doesn't do it: refused, never ignored."""


class PromptTooLong(InvalidRequest):
    """The context or the KV cache can never hold the prompt."""


class MalformedBody(InvalidRequest):
    """The body isn't what the endpoint takes."""


class AuthenticationFailed(EverystepError):
    """No key, or a wrong one."""


class NotFound(EverystepError):
    """No such route, model or request."""


class ClientTooSlow(EverystepError):
    """The request took longer to arrive than a client may take."""


class HeadersTooLarge(EverystepError):
    """The request's line and headers are over the limit."""


class BodyTooLarge(EverystepError):
    """The body is over the limit."""


class QueueFull(EverystepError):
    """The line is at its bound; ``retry_after_s`` estimates when there is room."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ClientGone(EverystepError):
    """The client left before its answer was whole."""


class EngineUnavailable(EverystepError):
    """The engine is starting, draining, restarting, or not installed."""


class QueueTimeout(EngineUnavailable):
    """The request waited longer than the queue deadline."""


class TooManyConnections(EngineUnavailable):
    """The server holds as many connections as it may."""


class RequestTimeout(EverystepError):
    """The request took longer than its deadline."""


class EngineFailed(EverystepError):
    """The forward pass, or the process that ran it, failed."""


class SchedulerStuck(EngineFailed):
    """Sequences wait, and no lane plans a step: a policy's own bug."""


class ConfigError(EverystepError):
    """A setting is unknown or out of its range."""


class ModelError(EverystepError):
    """A model is missing, corrupt, or of a kind that isn't supported."""


class UnsupportedModel(ModelError):
    """The model is sound, but of a kind that the chosen runner doesn't compute; another one may."""


HTTP_STATUS: dict[type[EverystepError], int] = {
    MalformedBody: 422,
    InvalidRequest: 400,
    AuthenticationFailed: 401,
    NotFound: 404,
    ClientTooSlow: 408,
    BodyTooLarge: 413,
    QueueFull: 429,
    HeadersTooLarge: 431,
    ClientGone: 499,
    EngineUnavailable: 503,
    RequestTimeout: 504,
    EngineFailed: 500,
}


def http_status(error: EverystepError) -> int:
    """The status of the most specific listed ancestor; 500 where none is listed."""
    for kind in type(error).__mro__:
        if kind in HTTP_STATUS:
            return HTTP_STATUS[kind]
    return 500
