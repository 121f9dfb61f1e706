"""Superpixels of photographs (table 3)."""
