"""Fit a field for the marginals that its inference will give: implicit and procedural fitting.

python examples/fit_marginals.py
"""

import numpy as np

import fieldfit as ff


def noisy_squares(n_images, noise=0.6):
    """Squares of ink on paper, in which a share ``noise`` of the pixels is set at random."""
    rng = np.random.default_rng(0)
    clean = np.zeros((n_images, 12, 12), dtype=int)
    for picture in clean:
        top, left = rng.integers(0, 7, size=2)
        picture[top : top + 6, left : left + 6] = 1
    is_random = rng.random(clean.shape) < noise
    seen = np.where(is_random, rng.integers(0, 2, clean.shape), clean)
    return 2.0 * seen[..., None] - 1.0, clean


def main(n_images=40):
    X, Y = noisy_squares(n_images)
    half = n_images // 2
    convex = ff.GridCRF("convex", l2=1.0).fit(X[:half], Y[:half])
    # these losses are not convex in the weights, so fits start from one that is
    models = {
        "implicit": ff.GridCRF(ff.ImplicitLoss("ucl"), l2=1.0, max_iter=500),
        "procedural": ff.GridCRF(ff.ProceduralLoss("ucl", n_sweeps=4), l2=1.0, max_iter=500),
    }
    errors = {"as seen": float(np.mean((X[half:, :, :, 0] > 0) != Y[half:]))}
    for name, crf in models.items():
        crf.fit(X[:half], Y[:half], start=convex.weights_)
        errors[name] = 1.0 - crf.score(X[half:], Y[half:])
    for name, error in errors.items():
        print(f"{name:12} {100 * error:5.1f} % of the pixels are wrong")
    return errors


if __name__ == "__main__":
    main()
