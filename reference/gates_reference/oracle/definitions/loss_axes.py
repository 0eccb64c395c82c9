"""One function for each choice of a policy loss: whose ratio it takes, and what bounds it.

They compose losses that no paper names. The published ones stand in `losses`, each in one piece; tests compare the two.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from gates_reference.oracle.definitions import exact, losses
from gates_reference.oracle.definitions.exact import Exact
from gates_reference.oracle.definitions.losses import Batch, Bounds, Taper, Term, times
from gates_reference.oracle.inputs import Bools, Floats


class Ratio(NamedTuple):
    """The ratio of each slot.

    Attributes:
        log: (B, T), its logarithm.
        moves: (B, 1): as many times r as the row's sum of ratios moves by with the log-prob of one token.
    """

    log: Exact
    moves: Floats

    @property
    def r(self) -> Floats:
        """The ratio, (B, T)."""
        return exact.exp(self.log)


def token(batch: Batch) -> Ratio:
    """Each token's own ratio. PPO (arXiv 1707.06347), section 3."""
    return Ratio(batch.log_ratio, np.ones((len(batch.counts), 1)))


def row_mean(batch: Batch) -> Ratio:
    """The geometric mean of the row, which stands n times in its sum and moves by r / n. GSPO (arXiv 2507.18071), eq. 7.

    GSPO-token's ratio (eq. 13) has this value and the slope of a token's own: it stands once and moves by r.
    """
    return Ratio(
        _on_tokens(exact.row_means(batch.log_ratio, batch.lengths), batch.counts), np.ones((len(batch.counts), 1))
    )


def row_product(batch: Batch) -> Ratio:
    """The product of the row's ratios, which stands n times in its sum and moves by r. RLOO (arXiv 2402.14740)."""
    return Ratio(_on_tokens(exact.row_sums(batch.log_ratio), batch.counts), batch.lengths[:, None].astype(np.float64))


def _on_tokens(of_rows: Exact, counts: Bools) -> Exact:
    return Exact(*(np.broadcast_to(part[:, None], counts.shape) for part in of_rows))


RATIOS: Mapping[str, Callable[[Batch], Ratio]] = MappingProxyType(
    {"token": token, "seq_mean": row_mean, "seq_mean_token": row_mean, "seq_sum": row_product}
)


def unbounded(batch: Batch, ratio: Ratio) -> Term:
    """The loss l = -r A."""
    value = -times(ratio.r, batch.weighted_advantages)
    return Term(value, value * ratio.moves)


def clipped(batch: Batch, ratio: Ratio, bounds: Bounds) -> Term:
    """The loss l = -min(min(r, delta) A, clip(r, low, high) A). PPO (arXiv 1707.06347), eq. 7."""
    term = losses.clipped(batch, ratio.r, bounds)
    return Term(term.value, term.slope * ratio.moves)


def clipped_in_nats(batch: Batch, ratio: Ratio, bounds: Bounds) -> Term:  # noqa: ARG001  the clip is inside the row's mean
    """The loss l = -A exp(mean_t q_t), q_t the clipped log-ratio of a token. GMPO (arXiv 2507.20673), eq. 4."""
    return losses.gmpo(batch, bounds)


def capped(batch: Batch, ratio: Ratio, bounds: Bounds) -> Term:
    """The loss l = -stop(clip(r, low, high)) A log pi. MiniMax-M1 (arXiv 2506.13585), eqs. 4 and 5."""
    return losses.weighed_log_prob(batch, np.clip(ratio.r, bounds.low, bounds.high))


def gated(batch: Batch, ratio: Ratio, tau: Floats) -> Term:
    """The loss l = -(4 / tau) sigma(tau (r - 1)) A. SAPO (arXiv 2511.20347)."""
    term = losses.gate(ratio.log, tau, batch.weighted_advantages)
    return Term(term.value, term.slope * ratio.moves)


def tapered(batch: Batch, ratio: Ratio, taper: Taper) -> Term:
    """The loss l = -stop(exp(lambda) r**k exp(-lambda r)) A log pi. VESPO (arXiv 2602.10693)."""
    return losses.weighed_log_prob(batch, losses.gamma_weight(ratio.log, taper))
