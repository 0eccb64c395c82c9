"""The KL term of a policy loss: an estimate per token, and a gradient that flows through its ratio too."""

from reference.oracle.definitions import kl, ratio
from reference.oracle.definitions.exact import Exact
from reference.oracle.definitions.losses import Batch, Term, times


def unweighted(d: Exact, estimator: str) -> Term:
    """k(d). DeepSeekMath (arXiv 2402.03300), eq. 4."""
    return Term(kl.estimate(d, estimator), kl.slope(d, estimator))


def by_token_ratio(batch: Batch, d: Exact, estimator: str) -> Term:
    """r k(d), whose derivative is r (k + dk). TRL's `use_bias_correction_kl`."""
    r = ratio.token_ratio(batch.log_ratio)
    return Term(times(r, kl.estimate(d, estimator)), times(r, kl.product_slope(d, estimator)))


def by_sequence_ratio(batch: Batch, d: Exact, estimator: str) -> Term:
    """rho k(d) with the row's mean ratio rho, which stands n times in the row's sum and moves by rho / n: rho (dk + mean k)."""
    rho = ratio.on_tokens(ratio.sequence_mean(batch.log_ratio, batch.lengths), batch.counts)
    k = kl.estimate(d, estimator)
    return Term(times(rho, k), times(rho, kl.slope(d, estimator) + kl.row_mean(k, batch.counts)))
