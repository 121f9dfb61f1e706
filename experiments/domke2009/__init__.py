"""Domke (2009), "Tractable learning and inference in high-treewidth graphical models"."""
