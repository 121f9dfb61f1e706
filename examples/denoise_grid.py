"""Learn to clean noisy digits: each pixel alone, by pseudo-likelihood, and by the TRW surrogate.

python examples/denoise_grid.py
"""

import numpy as np
from sklearn.datasets import load_digits

import fieldfit as ff


def noisy_digits(n_images, noise=0.25):
    """Binary digits of 8 x 8 pixels in which each pixel is flipped with probability ``noise``."""
    rng = np.random.default_rng(0)
    clean = (load_digits().images[:n_images] > 7).astype(int)
    seen = np.where(rng.random(clean.shape) < noise, 1 - clean, clean)
    # a pixel and how dark the three by three pixels around it are
    padded = np.pad(seen, ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    return np.stack([seen, windows.mean(axis=(3, 4))], axis=3), clean


def show(picture):
    return ["".join(".#"[label] for label in row) for row in picture]


def main(n_images=300):
    X, Y = noisy_digits(n_images)
    half = n_images // 2
    errors = {"as seen": float(np.mean(X[half:, :, :, 0] != Y[half:]))}
    models = {
        "each pixel alone": ff.GraphCRF("likelihood"),
        "pseudo-likelihood": ff.GridCRF("pseudolikelihood", neighbors=8, l2=0.1),
        "TRW": ff.GridCRF("trw", neighbors=8, l2=0.1),
    }
    for name, crf in models.items():
        given, labels = X, list(Y)
        if isinstance(crf, ff.GraphCRF):  # graphs without edges: logistic regression
            given, labels = [(x.reshape(-1, 2), []) for x in X], [y.ravel() for y in Y]
        crf.fit(given[:half], labels[:half])
        errors[name] = 1.0 - crf.score(given[half:], labels[half:])
    for name, error in errors.items():
        print(f"{name:18} {error:.1%} of the pixels are wrong")

    beliefs = crf.predict_marginals(X[half : half + 1])[0]
    pictures = X[half, :, :, 0].astype(int), beliefs.argmax(axis=2), Y[half]
    print("\nseen      restored  true")
    for rows in zip(*map(show, pictures), strict=True):
        print("  ".join(rows))
    return errors


if __name__ == "__main__":
    main()
