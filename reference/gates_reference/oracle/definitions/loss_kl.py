"""The KL term of a policy loss: an estimate per token, and a gradient that flows through its ratio too."""

import numpy as np

from gates_reference.oracle.definitions import kl, ratio
from gates_reference.oracle.definitions.exact import Exact
from gates_reference.oracle.definitions.losses import Batch, Term, times


def unweighted(d: Exact, estimator: str) -> Term:
    """The estimate k(d) itself. DeepSeekMath (arXiv 2402.03300), eq. 4."""
    return Term(kl.estimate(d, estimator), kl.slope(d, estimator))


def by_token_ratio(batch: Batch, d: Exact, estimator: str) -> Term:
    """The estimate times the token's ratio, r k(d), whose derivative is r (k + dk). TRL's `use_bias_correction_kl`."""
    r = ratio.token_ratio(batch.log_ratio)
    return Term(times(r, kl.estimate(d, estimator)), times(r, kl.product_slope(d, estimator)))


def by_sequence_ratio(batch: Batch, d: Exact, estimator: str) -> Term:
    """The estimate times the row's mean ratio, rho k(d), whose derivative is rho (dk + mean k).

    For rho stands n times in the row's sum and moves by rho / n with each log-prob.
    """
    rho = ratio.on_tokens(ratio.sequence_mean(batch.log_ratio, batch.lengths), batch.counts)
    k = kl.estimate(d, estimator)
    return Term(times(rho, k), times(rho, kl.slope(d, estimator) + kl.row_mean(k, batch.counts)))


def clamped(d: Exact, estimator: str, limit: float) -> Term:
    """The estimate held within +-limit, without a gradient outside. verl's `low_var_kl`, whose limit is 10."""
    k = kl.estimate(d, estimator)
    return Term(np.clip(k, -limit, limit), np.where(np.abs(k) <= limit, kl.slope(d, estimator), 0.0))


def weighed(batch: Batch, estimate: Term, kl_ratio: str) -> Term:
    """Any estimate k with its slope dk, times the ratio of a level: r (k + dk) of a token, rho (dk + mean k) of a row."""
    if kl_ratio == "none":
        return estimate
    if kl_ratio == "token":
        r = ratio.token_ratio(batch.log_ratio)
        return Term(times(r, estimate.value), times(r, estimate.value + estimate.slope))
    rho = ratio.on_tokens(ratio.sequence_mean(batch.log_ratio, batch.lengths), batch.counts)
    return Term(times(rho, estimate.value), times(rho, estimate.slope + kl.row_mean(estimate.value, batch.counts)))
