"""``everystep plan``: its flags.

Owns what may be asked for.  Ignorant of how it is done.
"""

from __future__ import annotations

import click

from everystep.errors import UnsupportedOption


@click.command()
def plan() -> None:
    """Under construction."""
    raise UnsupportedOption("plan: under construction")
