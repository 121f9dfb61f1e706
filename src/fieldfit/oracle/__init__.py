"""MAP searches: one algorithm, one file."""
