"""Welling and Sutton (2005), "Learning with contrastive free energies"."""
