"""Identify what wrong code computes instead, by a search over named edits of each op's forward definition."""
