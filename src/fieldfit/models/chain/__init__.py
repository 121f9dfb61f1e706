"""Linear-chain and skip-chain conditional random fields for sequences.

    p(y | x) ∝ exp(sum_t sum_f x_t[f] w(f, y_t) + sum_t w(y_t, y_{t+1}) + sum over skip edges)

Sequences are read (`chain_features.py`), given a layout of weights (`chain_layout.py`) and encoded
(`chain_tokens.py`).  Exact likelihoods go through fused kernels: scores of sparse features
(`sparse_scores.py`), forward-backward and Viterbi (`forward_backward.py`),
`chain_problem.py`.  Other objectives and skip edges take the general path over factor graphs
(`chain_parts.py`, `skip_edges.py`).
"""
