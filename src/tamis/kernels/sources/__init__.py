"""Source code of the native kernels: Python that Numba compiles. Only :mod:`tamis.kernels.compiler` imports it.

A module with a function ``kernel`` is one kernel; :mod:`tamis.kernels.signatures` describes its parameters. Kernels
take numbers and addresses of memory of Arrow and NumPy, return a number, and use no Python object.
"""
