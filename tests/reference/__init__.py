"""Plain, slow NumPy twins of the package's algorithms, written from the formulas alone."""
