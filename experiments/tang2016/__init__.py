"""Tang et al. (2016), "Bethe learning of graphical models via MAP decoding"."""
