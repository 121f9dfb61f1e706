"""Hidden units over digits."""
