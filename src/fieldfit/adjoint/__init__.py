"""Losses on beliefs, and derivatives that go back through an inference to its potentials."""
