"""Source code of the native kernels: Python that Numba compiles. Only :mod:`tamis.kernels.compiler` imports it.

A module here is one kernel. It has a function ``kernel`` and its ``SIGNATURE``. Kernels work on addresses: pointers to
Arrow's and NumPy's memory in, nothing but numbers out, no Python object in between.
"""
