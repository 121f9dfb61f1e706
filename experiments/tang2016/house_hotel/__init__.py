"""Landmarks of the house and hotel sequences."""
