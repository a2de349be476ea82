"""Kernels for NVIDIA GPUs. Each gives the same bits as its native counterpart; CuPy is imported when one is called."""
