"""What the report of each kind of model shows; `registry` finds it."""
