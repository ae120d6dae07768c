"""``everystep top``: lanes, seats and lines of a running server in a terminal.

Owns what is asked of the server, what is kept of it, and how it looks.  Talks HTTP; ignorant of the engine and of the
API's code, and never imports them: it may watch a server of another version, elsewhere.
"""
