"""Tunes templated CUDA kernels, remembers every measurement, and picks the right kernel at run time."""

__version__ = "0.1.0"
