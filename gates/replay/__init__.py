"""Replay a run of the reference trainer from its trace: each quantity is recomputed in float64 from what it was made of."""
