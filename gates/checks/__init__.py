"""The gates: one family a file."""
