"""Conditional random fields on graphs, with factors of any arity.

    p(y | x) ∝ exp(sum_i w(y_i)·x_i + sum over types t, factors a of t: V_t(y_a; x_a))

`graph_examples.py` reads an example, `factor_types.py` says what a type of factors is and which
blocks of weights it has, and `graph_crf.py` is the estimator.
"""
