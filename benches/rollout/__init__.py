"""Rollouts of the reference trainer against a bare loop and against peers, at identical lengths: `python -m benches.rollout`."""
