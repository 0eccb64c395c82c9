"""How far each quantity of a run may lie from what is recomputed, and why."""

from __future__ import annotations

from collections.abc import Mapping

from gates.replay import advantages, dropout, gradient, log_probs, metrics, optimizer, rewards, rollouts

NATS = "a forward pass in float32 errs by up to 3e-5 nats on models of this size (reference/gates_reference/tiny.py), here by six times that"
PREDECESSOR = "it is read from the trace, so that no rounding lies between"
EXACT: Mapping[str, str] = {
    rollouts.WHOLE: "an epoch has each prompt once",
    rollouts.ORDERED: "with shuffling each epoch has an order of its own, else that of the data",
    rollouts.TEXT: "a tokenizer gives one answer",
    rollouts.STOPS: "the model's files name them",
    rollouts.ASKED: "what is asked is what is configured",
    rollouts.KEYS: "equal keys draw equal completions",
    rollouts.ENDS: "a row ends at its first end token, or at the limit",
    rollouts.DRAWN: "a draw is a function of its key and the distribution, but for 2e-4 of a probability",
    rewards.TEXT: "rewards read what was sampled",
    advantages.KEPT: PREDECESSOR,
    advantages.ROUNDS: "a step rolls out again while it has too few groups, and no longer",
    log_probs.MASK: "a row trains on its own tokens, up to the one that ends it",
    log_probs.ROWS: PREDECESSOR,
    dropout.REPEATED: "a draw is a function of step, update, micro-batch and layer",
    log_probs.LACKING: "a ratio, a KL or a weight needs them",
    gradient.SPLIT: "each pass takes every row once, in micro-batches of the configured size",
    optimizer.KEPT: "adapters change in updates only",
    optimizer.LAYERS: "adapters are where they were configured",
    optimizer.BEGIN: "B = 0, so that training begins at the base",
    metrics.NAMES: "every number has a definition",
    metrics.LINES: "a step has one line, in order",
    metrics.SAID: "a line shows the numbers of its step",
    metrics.SHOWN: PREDECESSOR,
}
DERIVED: Mapping[str, tuple[float, str]] = {
    rollouts.RECORDED: (2e-4, NATS),
    log_probs.OLD: (2e-4, NATS),
    log_probs.REFERENCE: (2e-4, NATS),
    log_probs.POLICY: (2e-4, NATS),
    log_probs.ENTROPY: (2e-4, NATS),
    log_probs.SAMPLER: (2e-5, "a log-prob of the sampler, up to 100 nats, is rounded to float32 once"),
    dropout.KEPT: (6.5, "a binomial share is further away once in 10¹⁰"),
    rewards.RAW: (1e-12, "a handful of float64 operations on small numbers"),
    rewards.TOTAL: (1e-12, "a weighted sum of a few float64 numbers"),
    advantages.ADVANTAGE: (1e-5, "float32 rounds an advantage; of nearly equal rewards the deviation loses two digits"),
    gradient.LOSS: (1e-5, "a sum of up to 96 terms in float32, each with a few roundings"),
    gradient.GRADIENT: (
        1e-4,
        "float32 rounds a backward pass to 3e-6 of the gradient's norm, where logits have soft caps to 2.5e-5 (measured on ten families), and a direction of normal numbers has more once in a million",
    ),
    optimizer.RATE: (1e-6, "the rate is a float32 in the optimizer"),
    optimizer.NORM: (1e-5, "squares are summed in float32"),
    optimizer.APPLIED: (1e-5, "the factor is a float32, and squares are summed in float32"),
    optimizer.STEPPED: (1.0, "the unit is the rounding of the step: 64 operations, and 1 − β₂ᵗ in float32"),
    metrics.NUMBER: (1e-5, "means of float32 numbers, in float64"),
}


def limit(quantity: str) -> float:
    """Return the largest number that a quantity may have."""
    return 0.0 if quantity in EXACT else DERIVED[quantity][0]


def because(quantity: str) -> str:
    """Return the reason of its limit."""
    return EXACT[quantity] if quantity in EXACT else DERIVED[quantity][1]
