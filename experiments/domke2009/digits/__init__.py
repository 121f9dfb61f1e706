"""Digits under noise (section 6.2)."""
