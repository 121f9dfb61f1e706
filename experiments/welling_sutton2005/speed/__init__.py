"""Speed at equal quality: F1 against processor time (the claim beside table 1)."""
