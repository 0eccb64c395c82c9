"""Paths from prompts to tokens: the slow one that defines the answer, and the fast ones that must agree with it."""

from reference.trainer.rollout.dispatch import PATHS, run

__all__ = ["PATHS", "run"]
