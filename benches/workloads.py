"""Seeded workloads by name. Append only, since a changed input would invalidate old results."""

import zlib

import numpy as np

#: Prompts and completions per prompt.
REWARDS = {"16x4": (16, 4), "64x8": (64, 8), "256x16": (256, 16), "1024x32": (1024, 32)}

#: Sequences and tokens per sequence.
LOG_PROBABILITIES = {
    "1x128": (1, 128),
    "1x2048": (1, 2048),
    "32x512": (32, 512),
    "32x2048": (32, 2048),
    "128x2048": (128, 2048),
    "256x4096": (256, 4096),
    "1x512": (1, 512),
    "1x8192": (1, 8192),
    "32x128": (32, 128),
    "32x8192": (32, 8192),
}

#: Rows, vocabulary, and distribution of the logits: "peaked" like a language model's (about 4.5 nats), or "flat" normal ones.
LOGITS = {
    "4x4096-peaked": (4, 4096, "peaked"),
    "16x151936-peaked": (16, 151_936, "peaked"),
    "16x151936-flat": (16, 151_936, "flat"),
    "256x151936-flat": (256, 151_936, "flat"),
}

#: Sequences and tokens per sequence of a step's loss.
STEPS = {"4x64": (4, 64), "32x2048": (32, 2048)}

#: Numbers of packed sequences.
LENGTHS = {"1000": 1_000, "100000": 100_000, "1000000": 1_000_000}
LONGEST = 2048  # tokens, of a sequence and of a bin


def rewards(name):
    """Rewards (B,) in float64 and the group size; normal, like a reward model's."""
    prompts, group_size = REWARDS[name]
    return _generator("rewards", name).normal(size=prompts * group_size), group_size


def log_probabilities(name):
    """Log-probabilities of policy and reference (B, T) in float32: about -2 nats, 0.1 nats apart."""
    generator = _generator("log_probabilities", name)
    policy = -np.abs(generator.normal(2.0, 1.0, LOG_PROBABILITIES[name]))
    reference = policy + generator.normal(0.0, 0.1, policy.shape)
    return policy.astype(np.float32), reference.astype(np.float32)


def logits(name):
    """Logits (rows, V) in float32, and a token id and a uniform of each row."""
    rows, vocabulary, spread = LOGITS[name]
    generator = _generator("logits", name)
    if spread == "flat":
        values = generator.standard_normal((rows, vocabulary), dtype=np.float32)
        values *= np.float32(3.0)
    else:
        zipf = -1.5 * np.log(np.arange(vocabulary) + 3.0)
        values = np.empty((rows, vocabulary), np.float32)
        for row in values:
            row[:] = generator.permutation(zipf + generator.normal(0.0, 0.3, vocabulary))
    return values, generator.integers(0, vocabulary, rows), generator.random(rows)


def step(name):
    """Inputs of a loss in float32: log-probs of policy, old policy and reference (B, T), advantages (B,) and a mask."""
    rows, tokens = STEPS[name]
    generator = _generator("step", name)
    policy = -np.abs(generator.normal(2.0, 1.0, (rows, tokens)))
    old, reference = (policy + generator.normal(0.0, 0.1, policy.shape) for _ in range(2))
    mask = np.arange(tokens) < generator.integers(tokens // 4, tokens + 1, rows)[:, None]
    advantages = generator.normal(size=rows)
    return {
        "policy": policy.astype(np.float32),
        "old": old.astype(np.float32),
        "reference": reference.astype(np.float32),
        "advantages": advantages.astype(np.float32),
        "mask": mask,
    }


def lengths(name):
    """Lengths of sequences in tokens, int64: log-normal with a mean of about 240, at most `LONGEST`."""
    drawn = np.exp(_generator("lengths", name).normal(5.0, 1.0, LENGTHS[name]))
    return np.clip(drawn, 1, LONGEST).astype(np.int64)


def operands(op, name, dtype="float32"):
    """Return the arrays and sizes of an op by the names of `gates ops`.

    Args:
        op: a name of `gates ops`.
        name: of the shape.
        dtype: of the rewards; other arrays are float32.
    """
    values = OPERANDS[op](name)
    return {**values, "rewards": values["rewards"].astype(dtype)} if "rewards" in values else values


OPERANDS = {
    "group_advantages": lambda name: _named(rewards(name), "rewards", "group_size"),
    "token_kl": lambda name: {**_named(log_probabilities(name), "policy", "reference"), "mask": None, "lengths": None},
    "selective_log_softmax": lambda name: _named(logits(name), "logits", "ids"),
    "filtered_logprobs": lambda name: _named(logits(name), "logits"),
    "sample_tokens": lambda name: _named(logits(name)[::2], "logits", "uniforms"),
    "policy_loss": step,
    "pack_sequences": lambda name: {"lengths": lengths(name), "max_length": LONGEST},
}


def _named(values, *names):
    return dict(zip(names, values, strict=False))


def _generator(family, name):
    return np.random.default_rng(zlib.crc32(f"{family}/{name}".encode()))
