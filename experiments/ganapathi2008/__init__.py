"""Ganapathi et al. (2008), "Constrained approximate maximum entropy learning"."""
