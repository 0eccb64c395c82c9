"""Rewards of completions: built-in functions, one's own, and their weighted sum."""
