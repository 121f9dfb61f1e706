"""Learners: what moves the weights."""
