"""What is seen of the engine: step log, metrics, traces, lives of requests, logs.

Owns counting and remembering.  Told everything, the time included; decides nothing.
"""
