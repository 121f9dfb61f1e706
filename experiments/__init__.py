"""Experiments of papers, one folder for each paper, run by ``python -m experiments``.

They are programs that use fieldfit, and are not installed with it.
"""
