"""Room-mates and speed dating."""
