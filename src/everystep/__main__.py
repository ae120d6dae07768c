"""``python -m everystep``: the command line without the console script.

Owns nothing.  A spawned worker imports this file again, under another name: the guard keeps it quiet.
"""

from everystep.cli import main

if __name__ == "__main__":
    main()
