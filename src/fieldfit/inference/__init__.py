"""Marginals: one algorithm, one file."""
