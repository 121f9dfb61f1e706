"""Experiments of papers, one file each, run by ``fieldfit reproduce``."""
