"""The hand-written baseline: a round's prompts as one left-padded rectangle, one ``model.generate()`` call a round.

Owns the rectangle, the call and the lockstep between its tokens and our steps.  Ignorant of policies: that only static
rounds can run so, the runner says by its ``lanes``.
"""

from everystep.runner.generate.generate_runner import GenerateRunner

__all__ = ["GenerateRunner"]
