"""Rewards of completions: built-in functions, the user's own, and their weighted sum."""
