"""Random matchings of a known distribution."""
