"""Numerics that know nothing of graphs: kernels, SIMD, random numbers, sparse factorisations.

`compile` has the decorator of all kernels; `simd` and `matrix_vector` what they are built from
(exponentials, logarithms and K x K products that vectorise); `random_numbers` draws that are a
hash of (key, counter) and hence independent of threads; `heap`, `cholesky` and `selected_inverse`
the data structures and factorisations behind elimination orders, Newton steps and spanning-tree
probabilities.
"""
