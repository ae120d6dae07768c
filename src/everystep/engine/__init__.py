"""The engine: lanes on one runner, the loop that steps them, and the client that talks to it.

Owns the life of a sequence between the handler and the forward pass.  Ignorant of HTTP.
"""
