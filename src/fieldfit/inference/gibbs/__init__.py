"""Gibbs sampling: Markov chains of single-variable updates, in threads, with diagnostics.

    y_i ~ p(y_i | others) ∝ exp(th_i(y_i) + sum_{a on i} th_a(y_a))

`gibbs_sweeps` draws, `gibbs_chains` runs several chains and measures how well they mix, and `gibbs`
averages beliefs over them.
"""
