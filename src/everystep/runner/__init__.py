"""Forward passes: a plan in, one token a row out.

Owns models, KV cache tensors, kernels and sampling.  Ignorant of lines, seats and clients.
"""
