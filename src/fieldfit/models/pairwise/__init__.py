"""Pairwise Markov random fields learned from samples: Ising and Potts models.

    p(y) ∝ exp(sum_i f_i(y_i) + sum_(ij) J_ij(y_i, y_j))

All samples share one model: `sample_data.py` (distinct rows with weights), `sample_counts.py` (sums
over them), `sample_shards.py` (samples that stay on disk), `pairwise_parameters.py`
(weights to tables), `sample_partition.py` (the log-partition and its Hessian),
`sample_conditionals.py` (pseudo-likelihood kernels), `missing_conditionals.py` (the same with
missing labels), `missing_labels.py` (missing labels summed out by enumeration), `sample_chains.py`
(contrastive divergence), `pairwise_problems.py` (what learners minimise) and `standard_errors.py`
(sandwich estimator).  `pairwise_mrf.py` is the base of the estimators.
"""
