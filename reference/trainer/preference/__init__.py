"""Algorithms that learn from comparisons of completions, by the protocol of `reference.trainer.algorithms`."""
