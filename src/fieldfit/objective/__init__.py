"""Objectives: labels and potentials in, a value and a gradient on the potentials out."""
