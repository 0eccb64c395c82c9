"""Rollout paths from prompts to tokens: `naive` defines the result, and the faster paths must agree with it."""

from gates_reference.trainer.rollout.dispatch import PATHS, fastest, run

__all__ = ["PATHS", "fastest", "run"]
