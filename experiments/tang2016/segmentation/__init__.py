"""Horses cut out of photographs."""
