r"""GRPO: Group Relative Policy Optimization (Shao et al. 2024, "DeepSeekMath", arXiv 2402.03300, eq. 3).

    loss = mean_i (1/n_i) sum_t [ -min(min(r, delta) A, clip(r, 1 - eps_low, 1 + eps_high) A) + beta k3 ]

with r = exp(policy - old), k3 = exp(d) - d - 1, d = reference - policy (eq. 4). Everything is float32: differences of
log-probs are carried with their rounding error, sums are trees. Masked slots are selected away before and after.
"""

from dataclasses import dataclass

import mlx.core as mx

from reference.trainer import precise


@dataclass(frozen=True, slots=True)
class Settings:
    """The constants of the loss; `delta` is the optional upper bound of the ratio for negative advantages."""

    epsilon_low: float = 0.2
    epsilon_high: float = 0.2
    delta: float | None = None
    beta: float = 0.0

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        if self.epsilon_low < 0 or self.epsilon_high < 0:
            raise ValueError(f"epsilon_low, epsilon_high are {self.epsilon_low}, {self.epsilon_high}, must be >= 0")
        if self.delta is not None and self.delta <= 1 + self.epsilon_high:
            raise ValueError(f"delta is {self.delta}, must be > 1 + epsilon_high = {1 + self.epsilon_high}")
        if self.beta < 0:
            raise ValueError(f"beta is {self.beta}, must be >= 0")


def select(mask: mx.array, values: mx.array) -> mx.array:
    """The values where the mask is true and 0 elsewhere, whatever stands there; the same holds for the gradient."""
    return mx.where(mask, values, mx.zeros((), values.dtype))


def token_ratio(policy: mx.array, old: mx.array) -> mx.array:
    """exp(policy - old) per token (B, T), +inf where it overflows; `old` is a constant."""
    return precise.exp(*precise.difference(policy, mx.stop_gradient(old)))


def token_kl(policy: mx.array, reference: mx.array) -> mx.array:
    """Schulman's k3 of each token (B, T): exp(d) - 1 - d, d = reference - policy; never negative."""
    return precise.k3(*precise.difference(mx.stop_gradient(reference), policy))


def clipped(policy: mx.array, old: mx.array, advantages: mx.array, settings: Settings) -> mx.array:
    """The clipped surrogate of each token, to be minimised, (B, T); a bound acts strictly outside itself.

    The log-probs of tokens whose ratio is clipped are replaced before the exponential, so that an overflow there has gradient 0, not NaN.
    """
    ratio = mx.stop_gradient(token_ratio(policy, old))
    low, high = 1.0 - settings.epsilon_low, 1.0 + settings.epsilon_high
    delta = float("inf") if settings.delta is None else settings.delta
    gains = advantages > 0
    live = mx.where(gains, ratio <= high, (ratio >= low) & (ratio <= delta)) & (advantages != 0)
    bound = mx.where(gains, high, mx.where(ratio > delta, delta, low))
    bound = mx.where(advantages == 0, 1.0, bound)
    return -mx.where(live, token_ratio(mx.where(live, policy, old), old), bound) * advantages


def aggregate(values: mx.array, mask: mx.array) -> mx.array:
    """The mean over rows of the mean over a row's masked tokens; a row without tokens gives 0 and counts."""
    counts = mask.sum(axis=1).astype(values.dtype)
    return precise.tree_sum(precise.tree_sum(values) / mx.maximum(counts, 1.0)) / values.shape[0]


def loss(
    policy: mx.array,
    old: mx.array | None,
    reference: mx.array | None,
    advantages: mx.array,
    mask: mx.array,
    settings: Settings,
) -> mx.array:
    """The GRPO loss of log-probs (B, T), advantages (B,) or (B, T) and mask (B, T); no `old` means one on-policy update.

    Raises:
        ValueError: beta > 0 without reference log-probs.
    """
    policy = select(mask, policy)
    old = mx.stop_gradient(policy) if old is None else select(mask, old)
    gains = advantages[:, None] if advantages.ndim == 1 else select(mask, advantages)
    values = clipped(policy, old, gains, settings)
    if settings.beta > 0:
        if reference is None:
            raise ValueError(f"beta is {settings.beta} and reference is None, must be given when beta > 0")
        values = values + settings.beta * token_kl(policy, select(mask, reference))
    return aggregate(select(mask, values), mask)
