"""From logits to tokens, one a row: exact, vectorised over the batch, a function of each row alone.

Owns every sampling parameter's meaning and the randomness behind a draw.  Ignorant of models, of how logits came to
be, of clients and clocks.  :class:`Sampler` is the door; a runner needs nothing else from here.
"""

from everystep.runner.sampling.sampler import SampledRows, Sampler

__all__ = ["SampledRows", "Sampler"]
