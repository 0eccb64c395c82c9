"""Seeded workloads by name. Append only: a changed input makes old results mean something else."""

import zlib

import numpy as np

#: Prompts and completions per prompt.
REWARDS = {"16x4": (16, 4), "64x8": (64, 8), "256x16": (256, 16), "1024x32": (1024, 32)}

#: Sequences and tokens per sequence.
LOG_PROBABILITIES = {"1x128": (1, 128), "1x2048": (1, 2048), "32x512": (32, 512), "32x2048": (32, 2048)}


def rewards(name):
    """Rewards (B,) in float64 and the group size; normal, as a reward model gives them."""
    prompts, group_size = REWARDS[name]
    return _generator("rewards", name).normal(size=prompts * group_size), group_size


def log_probabilities(name):
    """Log-probabilities of policy and reference (B, T) in float32: about -2 nats, 0.1 nats apart."""
    generator = _generator("log_probabilities", name)
    policy = -np.abs(generator.normal(2.0, 1.0, LOG_PROBABILITIES[name]))
    reference = policy + generator.normal(0.0, 0.1, policy.shape)
    return policy.astype(np.float32), reference.astype(np.float32)


def _generator(family, name):
    return np.random.default_rng(zlib.crc32(f"{family}/{name}".encode()))
