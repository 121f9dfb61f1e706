"""The fieldfit command."""
