"""Contenders that the benchmark starts itself: what they need, how they are started, ended and kept quiet.

Owns their processes.  Ignorant of loads and figures.
"""
