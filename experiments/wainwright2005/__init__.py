"""Wainwright (2005), "Estimating the 'wrong' Markov random field"."""
