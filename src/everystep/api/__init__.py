"""The HTTP server's application.

Owns :func:`create_app`.  Everything below it is ignorant of HTTP.
"""

from everystep.api.app import create_app

__all__ = ["create_app"]
