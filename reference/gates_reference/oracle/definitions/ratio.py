"""How far the policy has moved from the policy that sampled: ratios of a token and of a sequence, and corrections.

`log_ratio` is (B, T), the difference of two log-probs in nats, and 0 in slots without a token.
"""

import numpy as np

from gates_reference.oracle.definitions import exact
from gates_reference.oracle.definitions.exact import Exact
from gates_reference.oracle.inputs import Bools, Floats, Ints


def token_ratio(log_ratio: Exact) -> Floats:
    """The ratio r_t = exp(policy_t - old_t). PPO (arXiv 1707.06347), section 3."""
    return exact.exp(log_ratio)


def sequence_product(log_ratio: Exact) -> Floats:
    """The product r = prod_t r_t = exp(sum_t (policy_t - old_t)), (B,). RLOO (arXiv 2402.14740)."""
    return exact.exp(exact.row_sums(log_ratio))


def sequence_mean(log_ratio: Exact, lengths: Ints) -> Floats:
    """The geometric mean r = (prod_t r_t)**(1 / n) = exp(sum_t (policy_t - old_t) / n), (B,). GSPO (arXiv 2507.18071), eq. 7."""
    return exact.exp(exact.row_means(log_ratio, lengths))


def on_tokens(of_rows: Floats, counts: Bools) -> Floats:
    """A number of each row on all its slots, (B, T)."""
    return of_rows[:, None] * np.ones(counts.shape)


def truncated(ratio: Floats, c_min: float, c_max: float) -> Floats:
    """The weight w = min(max(r, c_min), c_max). TIS: Yao et al. (2025), as in `importance_weights`."""
    return np.minimum(np.maximum(ratio, c_min), c_max)


def masked(ratio: Floats, c_min: float, c_max: float) -> Floats:
    """The weight w = r if c_min <= r <= c_max, else 0. MIS, as TRL's `vllm_importance_sampling_mode`."""
    return np.where((ratio >= c_min) & (ratio <= c_max), ratio, 0.0)


def recorded(old: Floats, sampling: Floats) -> Floats:
    """The sampler's log-prob; where it recorded none (NaN) the trainer's own, which makes the difference 0."""
    return np.where(np.isnan(sampling), old, sampling)
