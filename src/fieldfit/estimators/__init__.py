"""Estimators: models that people fit, in the conventions of scikit-learn."""
