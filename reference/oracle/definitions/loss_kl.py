"""The KL term of a policy loss: an estimate per token, and a gradient that flows through its ratio too."""

from reference.oracle.definitions import kl, ratio
from reference.oracle.definitions.exact import Exact
from reference.oracle.definitions.losses import Batch, Term, times


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
