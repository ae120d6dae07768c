"""The vLLM engine: vLLM behind the same ``submit / abort / events`` as our own worker.

Owns the process that runs vLLM, the client of a vLLM server that runs elsewhere, and what is passed on to vLLM and what
refused.  Ignorant of HTTP routes and of how vLLM schedules.  ``host`` and what it imports run in vLLM's own
environment, which needn't have anything of ours installed: they may import msgspec, vLLM and the standard library only.
"""
