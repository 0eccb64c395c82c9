"""Algorithms that learn from comparisons of completions, by the interface of `algorithms.protocol`."""
