"""The version, once.

Owns the number that the package, the command line and ``/version`` show.  Ignorant of all else.
"""

__version__ = "0.1.0"
