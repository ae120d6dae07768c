"""The benchmark client: loads, contenders that take turns, figures, tables.

Owns how a server is measured from outside.  Talks HTTP (and JSON lines to a peer that has no server); ignorant of the
engine, and never imports it: what is measured is what a client gets.
"""
