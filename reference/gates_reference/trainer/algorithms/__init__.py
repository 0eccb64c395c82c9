"""Losses in MLX, one algorithm a file."""
