"""Losses on exact chains (section 3.7)."""
