"""``everystep replay``: its flags.

Owns what may be asked for.  Ignorant of how it is done.
"""

from __future__ import annotations

import click

from everystep.errors import UnsupportedOption


@click.command()
def replay() -> None:
    """Under construction."""
    raise UnsupportedOption("replay: under construction")
