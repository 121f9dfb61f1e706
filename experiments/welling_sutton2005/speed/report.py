"""Stub."""
def report(*a): return ""
def table(*a): return ""
def headline(*a): return {}
