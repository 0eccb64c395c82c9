"""What every name means, in float64 NumPy and in the paper's order: the truth that subjects are judged by."""
