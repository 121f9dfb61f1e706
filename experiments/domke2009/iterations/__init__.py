"""Procedural fitting with other numbers of iterations (section 6.4)."""
