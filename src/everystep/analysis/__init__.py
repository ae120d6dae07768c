"""Measured steps turned into predictions and decisions: loads, step-cost model, simulator, replay, capacity.

Owns what a schedule costs and what it would have cost.  Reads no clock, talks to nobody, and never imports the engine
or a runner: the policies are the very ones that the engine drives, time is a number, and a core to replay on is passed
in.
"""
