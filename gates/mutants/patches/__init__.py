"""The mistakes themselves; loaded in workers only."""
