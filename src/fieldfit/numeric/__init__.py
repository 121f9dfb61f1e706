"""Numerics that know nothing of graphs: kernels, SIMD, random numbers, sparse factorisations.

`compile` has the decorator of all kernels; `simd`, `matrix_vector` and `lane_products` what they
are built from (exponentials, logarithms, K x K products and contractions that vectorise);
`random_numbers` draws that are a hash of (key, counter) and hence independent of threads; `heap`,
`cholesky` and `selected_inverse` the data structures and factorisations behind elimination orders,
Newton steps and spanning-tree probabilities.
"""
