"""Numba kernels on plain arrays; no classes, no validation."""
