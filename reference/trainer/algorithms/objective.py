"""How a policy-gradient algorithm becomes a loss: everything but the surrogate, which is what an algorithm's file defines.

    loss = sum_i a_i [ sum_t l_t(log-ratio, gain) + beta sum_t KL_t ] - c sum_t H_t m'_t / sum m'

a_i is the weight of a token of row i (`aggregation`), gain = A w m': the advantage times the off-policy weight, 0 for tokens
that the top-entropy mask leaves out. Masked slots are selected away, never multiplied.
"""

from dataclasses import dataclass
from typing import Literal

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from reference.trainer.algorithms import advantages, aggregation, corrections, entropy, kl, pairs, ratio
from reference.trainer.algorithms.options import Clipped, Settings
from reference.trainer.algorithms.pairs import Pair
from reference.trainer.algorithms.protocol import Loss, Rewards, Scored, Whole


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a surrogate sees of B rows, 0 where no token stands.

    `policy` is (B, T), `log_ratio` policy - old as a pair of (B, T), `counts` (B, 1) the tokens of each row as float32. `gains`
    is (B, T), or (B, 1) for an algorithm with one ratio for a whole row.
    """

    policy: mx.array
    log_ratio: Pair
    counts: mx.array
    gains: mx.array


class PolicyGradient:
    """An `Algorithm` whose loss is a surrogate of the ratio; a subclass says which."""

    name = ""
    by_row = False
    """Whether a whole row has one ratio, one advantage and one off-policy weight; its loss stands once for each token."""

    clip_level: Literal["token", "seq_mean"] = "token"
    """Whose ratio a clip acts on, told to the metrics: the token's, or the mean one of its completion."""

    def __init__(self, settings: Settings) -> None:
        """Keep the settings; one weight for each token does not fit one ratio for a whole row."""
        self.settings = settings
        if self.by_row and settings.correction is not None and settings.correction_level == "token":
            raise ValueError(
                f"correction_level is 'token', must be 'seq_sum' for {self.name!r}: its rows have one ratio"
            )

    @property
    def clip_widths(self) -> tuple[float, float] | None:
        """How far below and above 1 a ratio counts, told to the metrics; None where nothing is clipped."""
        s = self.settings
        return (s.epsilon_low, s.epsilon_high) if isinstance(s, Clipped) else None

    @property
    def needs_reference(self) -> bool:
        """Whether `Scored.reference` is read: there is a KL, in the loss or in the reward."""
        return self.settings.beta > 0

    @property
    def needs_entropy(self) -> bool:
        """Whether `Scored.entropy` is read."""
        return self.settings.entropy_share < 1 or self.settings.entropy_bonus > 0

    @property
    def needs_sampling(self) -> bool:
        """Whether `Scored.sampling` is read."""
        return self.settings.correction is not None

    def advantages(self, rewards: Rewards, *, old_kl: NDArray[np.float64] | None = None) -> NDArray[np.float32]:
        """The advantages (R,) by the settings."""
        return advantages.of_rewards(rewards, self.settings, old_kl=old_kl)

    def keep(self, rewards: Rewards) -> NDArray[np.bool_]:
        """Every group (P,) is trained on."""
        return np.ones(len(rewards.values) // rewards.group_size, np.bool_)

    def surrogate(self, tokens: Tokens) -> mx.array:
        """The loss of each token (B, T), or of each row (B, 1), to be minimised."""
        raise NotImplementedError

    def loss(self, part: Scored, whole: Whole) -> Loss:
        """The part's share of the loss of the whole step.

        Raises:
            ValueError: something is missing that the settings need, or advantages do not have the algorithm's shape.
        """
        policy = ratio.select(part.mask, part.policy)
        old = None if part.old is None else ratio.select(part.mask, part.old)
        log_ratio = ratio.token(policy, old)
        counts = part.mask.sum(axis=1, keepdims=True).astype(mx.float32)
        top = entropy.of_step(part, whole, self.settings.entropy_share) if self.needs_entropy else None
        chosen = part.mask if top is None else entropy.chosen(part, top.least)
        gains = row_gains(self, part, chosen, counts) if self.by_row else token_gains(self, part, chosen)
        weight = aggregation.row_weights(self.settings.aggregation, part, whole, counts)
        losses = self.surrogate(Tokens(policy, log_ratio, counts, gains))
        value = pairs.total((weight * counts if self.by_row else weight) * losses)
        penalty = kl_penalty(self.settings, part, policy, log_ratio, counts, weight)
        bonus = mx.zeros(())
        if top is not None and self.settings.entropy_bonus > 0:
            bonus = -self.settings.entropy_bonus * entropy.bonus(part, chosen, top.tokens)
        return Loss(value + penalty + bonus, value, penalty, bonus)


def kl_penalty(
    settings: Settings, part: Scored, policy: mx.array, log_ratio: Pair, counts: mx.array, weight: mx.array
) -> mx.array:
    """The KL's share of the loss: beta times the weighted sum of its tokens, 0 where it belongs to the reward."""
    if settings.beta == 0 or settings.kl_in_reward:
        return mx.zeros(())
    if part.reference is None:
        raise ValueError(f"beta is {settings.beta} and reference is None, must be given when beta > 0")
    reference = ratio.select(part.mask, part.reference)
    values = kl.weighted(
        kl.token_kl(policy, reference, settings.kl_estimator),
        policy,
        reference,
        log_ratio,
        counts,
        estimator=settings.kl_estimator,
        kl_ratio=settings.kl_ratio,
    )
    return pairs.total(settings.beta * weight * ratio.select(part.mask, values))


def token_gains(algorithm: PolicyGradient, part: Scored, chosen: mx.array) -> mx.array:
    """The advantage of each token times its off-policy weight (B, T), 0 where it does not train."""
    gains = _wide(part.advantages, part, "advantages")
    weights = _weights(algorithm, part)
    return ratio.select(chosen, gains if weights is None else gains * _wide(weights, part, "weights"))


def row_gains(algorithm: PolicyGradient, part: Scored, chosen: mx.array, counts: mx.array) -> mx.array:
    """The advantage of each row times its off-policy weight and the share of its tokens that train, (B, 1)."""
    gains = _one_each(part.advantages, part, "advantages")
    weights = _weights(algorithm, part)
    if weights is not None:
        gains = gains * _one_each(weights, part, "weights")
    share = chosen.sum(axis=1, keepdims=True) / mx.maximum(counts, 1.0)
    return ratio.select(counts > 0, gains * share)


def _weights(algorithm: PolicyGradient, part: Scored) -> mx.array | None:
    settings = algorithm.settings
    if part.weights is not None or settings.correction is None:
        return part.weights
    if part.sampling is None:
        raise ValueError(f"correction is {settings.correction!r} and Scored.sampling is None, must be given")
    return corrections.weights(
        part.policy if part.old is None else part.old,
        part.sampling,
        part.mask,
        correction=settings.correction,
        level=settings.correction_level,
        c_min=settings.correction_low,
        c_max=settings.correction_high,
    )


def _wide(values: mx.array, part: Scored, name: str) -> mx.array:
    rows, _ = part.mask.shape
    if values.shape == part.mask.shape:
        return ratio.select(part.mask, values)
    return mx.broadcast_to(_column(values, rows, name, f" or {part.mask.shape}"), part.mask.shape)


def _one_each(values: mx.array, part: Scored, name: str) -> mx.array:
    return _column(values, part.mask.shape[0], name, ": this algorithm has one ratio for a whole row")


def _column(values: mx.array, rows: int, name: str, other: str) -> mx.array:
    if values.shape not in {(rows,), (rows, 1)}:
        raise ValueError(f"`{name}` has shape {values.shape}, must be {(rows,)}{other}")
    return values.reshape(rows, 1)
