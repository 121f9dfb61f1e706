"""Stub."""
def courses(*a): return lambda figure: None
def gradients(*a): return lambda figure: None
