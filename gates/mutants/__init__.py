"""Real mistakes of the field, and where they are planted: one family a file."""
