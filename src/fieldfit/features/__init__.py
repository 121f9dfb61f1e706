"""Features of raw data, ready for the estimators: one module for each kind of data."""
