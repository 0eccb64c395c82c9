"""The loss that all policy-gradient algorithms share; the surrogate l is defined in each algorithm's own file.

    loss = sum_i a_i [ sum_t l_t(log-ratio, A w m') + beta sum_t KL_t ] - c sum_t H_t m'_t / sum m'

a_i is the weight of a token of row i, by name of the aggregation:

| name | weight of a token of row i | source |
|---|---|---|
| row-mean | 1 / (B n_i) | GRPO, arXiv 2402.03300, eq. 3 |
| row-sum | 1 / B | LUSPO, arXiv 2602.05261 |
| constant | 1 / (B L_max) | Dr. GRPO, arXiv 2503.20783, section 3.2 |
| global | 1 / (tokens of the step) | DAPO as verl computes it |
| group | 1 / (P tokens of the row's group) | DAPO, arXiv 2503.14476, eq. 8 |
| trl | 1 / (tokens of the generation batch times the step's share of it) | TRL's loss_type "dapo" |
| width | 1 / (B T), T the step's padded width | Dr. GRPO with the batch's own width in place of L_max |
| micro-batch | 1 / (micro-batches · tokens of the row's micro-batch) | TRL's loss_type "bnpo" |

All but the last divide by counts of the whole step, so that its micro-batches add up to it. A row without tokens adds 0 and is
counted in B.

A w m' is the weighted advantage: the advantage times the off-policy weight, and 0 for tokens that the top-entropy mask m' leaves
out. Masked slots are selected away, never multiplied by 0.
"""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from gates_reference.trainer import double
from gates_reference.trainer.algorithms import advantages, corrections, entropy, ratio
from gates_reference.trainer.algorithms.options import Clipped, Settings
from gates_reference.trainer.algorithms.protocol import Algorithm, Loss, MicroBatch, Rewards, StepTotals
from gates_reference.trainer.double import Double


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a surrogate is computed from, for B rows; masked slots are 0.

    Attributes:
        policy: (B, T) log-probs.
        log_ratio: (B, T), policy - old.
        counts: (B, 1), the tokens of each row, float32.
        weighted_advantages: (B, T), or (B, 1) for an algorithm with one ratio per row.
    """

    policy: mx.array
    log_ratio: Double
    counts: mx.array
    weighted_advantages: mx.array


class PolicyGradient(Algorithm):
    """An algorithm whose loss is a surrogate of the ratio, defined by a subclass."""

    by_row = False
    """Whether a row has one ratio, one advantage and one off-policy weight; its loss is then counted once per token."""

    def __init__(self, settings: Settings) -> None:
        """Keep the settings; refuse off-policy weights per token where a row has one ratio."""
        if self.by_row and settings.correction is not None and settings.correction_level == "token":
            raise ValueError(
                f"correction_level is 'token', must be 'seq_sum' for {self.name!r}: its rows have one ratio"
            )
        self.settings = settings
        self.needs_reference = settings.beta > 0
        self.needs_entropy = settings.entropy_share < 1 or settings.entropy_bonus > 0
        self.needs_sampling = settings.correction is not None
        self.kl_in_reward = settings.kl_in_reward and settings.beta > 0
        self.entropy_share = settings.entropy_share
        self.masks_truncated = settings.mask_truncated_completions

    @property
    def clip_widths(self) -> tuple[float, float]:
        """The widths of the clip, if the algorithm has one."""
        s = self.settings
        return (s.epsilon_low, s.epsilon_high) if isinstance(s, Clipped) else super().clip_widths

    def advantages(self, rewards: Rewards, *, old_kl: NDArray[np.float64] | None = None) -> NDArray[np.float32]:
        """Return the advantages (R,) that the settings define."""
        return advantages.of_rewards(rewards, self.settings, old_kl=old_kl)

    def surrogate(self, tokens: Tokens) -> mx.array:
        """Return the loss of each token (B, T), or of each row (B, 1), to be minimised."""
        raise NotImplementedError

    def loss(self, batch: MicroBatch, totals: StepTotals) -> Loss:
        """Return the micro-batch's share of the loss of the whole step.

        Raises:
            ValueError: something that the settings need is missing, or the advantages have another shape.
        """
        policy = ratio.select(batch.mask, batch.policy)
        old = None if batch.old is None else ratio.select(batch.mask, batch.old)
        log_ratio = ratio.token(policy, old)
        counts = batch.mask.sum(axis=1, keepdims=True).astype(mx.float32)
        top = entropy.of_step(batch, totals, self.settings.entropy_share) if self.needs_entropy else None
        chosen = batch.mask if top is None else entropy.chosen(batch, top.least)
        weighted = (
            weighted_by_row(self, batch, chosen, counts) if self.by_row else weighted_by_token(self, batch, chosen)
        )
        weight = row_weights(self.settings.aggregation, batch, totals, counts)
        losses = self.surrogate(Tokens(policy, log_ratio, counts, weighted))
        value = double.total((weight * counts if self.by_row else weight) * losses)
        penalty = kl_penalty(self.settings, batch, policy, log_ratio, counts, weight)
        bonus = mx.zeros(())
        if top is not None and self.settings.entropy_bonus > 0:
            bonus = -self.settings.entropy_bonus * entropy.bonus(batch, chosen, top.tokens)
        return Loss(value + penalty + bonus, value, penalty, bonus)


def row_weights(aggregation: str, batch: MicroBatch, totals: StepTotals, counts: mx.array) -> mx.array:
    """Return the weight of a token of each row (B, 1), float32; `counts` (B, 1) are the rows' tokens.

    Raises:
        ValueError: `totals` lacks a count that the aggregation divides by.
    """
    divisor = _divisor(aggregation, batch, totals, counts)
    return mx.where(counts > 0, 1.0 / mx.maximum(divisor, 1e-30), 0.0)


def _divisor(aggregation: str, batch: MicroBatch, totals: StepTotals, counts: mx.array) -> mx.array:
    if aggregation == "row-mean":
        return totals.rows * counts
    if aggregation == "group":
        tokens = len(totals.group_tokens) * np.asarray(totals.group_tokens, np.float64)[batch.groups]
        return mx.array(tokens.astype(np.float32))[:, None]
    if aggregation == "micro-batch":
        return totals.micro_batches * mx.broadcast_to(counts.sum(), counts.shape)
    if aggregation == "trl" and totals.window_tokens is None:
        raise ValueError(
            "aggregation is 'trl' and StepTotals.window_tokens is None, must be the tokens of the generation batch times "
            "the step's share of it; or choose 'global'"
        )
    if aggregation == "width" and totals.width is None:
        raise ValueError(
            "aggregation is 'width' and StepTotals.width is None, must be the token slots of the step's widest micro-batch; "
            "or choose 'constant'"
        )
    constant = {
        "row-sum": totals.rows,
        "constant": totals.rows * totals.max_length,
        "width": totals.rows * (totals.width or 0),
        "global": totals.tokens,
        "trl": totals.window_tokens or 0,
    }[aggregation]
    return mx.full(counts.shape, float(constant))


def kl_penalty(
    settings: Settings, batch: MicroBatch, policy: mx.array, log_ratio: Double, counts: mx.array, weight: mx.array
) -> mx.array:
    """Return beta times the weighted sum of the tokens' KL; 0 if the KL is part of the reward."""
    if settings.beta == 0 or settings.kl_in_reward:
        return mx.zeros(())
    if batch.reference is None:
        raise ValueError(f"beta is {settings.beta} and reference is None, must be given when beta > 0")
    reference = ratio.select(batch.mask, batch.reference)
    values = ratio.weighted_kl(
        ratio.token_kl(policy, reference, settings.kl_estimator),
        policy,
        reference,
        log_ratio,
        counts,
        estimator=settings.kl_estimator,
        kl_ratio=settings.kl_ratio,
    )
    return double.total(settings.beta * weight * ratio.select(batch.mask, values))


def weighted_by_token(algorithm: PolicyGradient, batch: MicroBatch, chosen: mx.array) -> mx.array:
    """Return the advantage of each token times its off-policy weight (B, T), 0 where the token is not `chosen`."""
    weighted = _wide(batch.advantages, batch, "advantages")
    weights = _weights(algorithm, batch)
    return ratio.select(chosen, weighted if weights is None else weighted * _wide(weights, batch, "weights"))


def weighted_by_row(algorithm: PolicyGradient, batch: MicroBatch, chosen: mx.array, counts: mx.array) -> mx.array:
    """Return the advantage of each row times its off-policy weight and the share of its `chosen` tokens, (B, 1)."""
    weighted = _one_each(batch.advantages, batch, "advantages")
    weights = _weights(algorithm, batch)
    if weights is not None:
        weighted = weighted * _one_each(weights, batch, "weights")
    share = chosen.sum(axis=1, keepdims=True) / mx.maximum(counts, 1.0)
    return ratio.select(counts > 0, weighted * share)


def _weights(algorithm: PolicyGradient, batch: MicroBatch) -> mx.array | None:
    settings = algorithm.settings
    if batch.weights is not None or settings.correction is None:
        return batch.weights
    if batch.sampling is None:
        raise ValueError(f"correction is {settings.correction!r} and MicroBatch.sampling is None, must be given")
    return corrections.weights(
        batch.policy if batch.old is None else batch.old,
        batch.sampling,
        batch.mask,
        correction=settings.correction,
        level=settings.correction_level,
        c_min=settings.correction_low,
        c_max=settings.correction_high,
    )


def _wide(values: mx.array, batch: MicroBatch, name: str) -> mx.array:
    rows, _ = batch.mask.shape
    if values.shape == batch.mask.shape:
        return ratio.select(batch.mask, values)
    return mx.broadcast_to(_column(values, rows, name, f" or {batch.mask.shape}"), batch.mask.shape)


def _one_each(values: mx.array, batch: MicroBatch, name: str) -> mx.array:
    return _column(values, batch.mask.shape[0], name, ": this algorithm has one ratio for a whole row")


def _column(values: mx.array, rows: int, name: str, alternative: str) -> mx.array:
    if values.shape not in {(rows,), (rows, 1)}:
        raise ValueError(f"`{name}` has shape {values.shape}, must be {(rows,)}{alternative}")
    return values.reshape(rows, 1)
