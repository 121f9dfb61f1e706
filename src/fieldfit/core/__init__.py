"""Graphs, potentials, beliefs, entropies, results."""
