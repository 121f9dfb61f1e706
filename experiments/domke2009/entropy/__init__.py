"""Entropies that are fitted (section 6.3)."""
