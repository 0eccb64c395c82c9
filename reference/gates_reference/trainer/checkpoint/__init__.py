"""Checkpoints and append-only files, from which a run resumes with the same bytes."""
