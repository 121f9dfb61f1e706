"""Street scenes with missing labels (section 6.5)."""
