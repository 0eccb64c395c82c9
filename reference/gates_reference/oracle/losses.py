"""The policy losses of GRPO and its relatives, with their analytic gradients and the scale of their errors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gates_reference.oracle.aggregation import AGGREGATIONS, row_weights
from gates_reference.oracle.definitions.exact import difference, total
from gates_reference.oracle.definitions.loss_axes import RATIOS
from gates_reference.oracle.definitions.losses import DEFINITIONS, Batch, Definition, Term
from gates_reference.oracle.inputs import Bools, Floats, choice, finite, floats, number
from gates_reference.oracle.loss_terms import BOUNDS, Settings, loss_kl, surrogate
from gates_reference.oracle.rows import Rows, rows_of

KL_AGGREGATIONS = ("row-mean", "row-sum", "token-mean")


@dataclass(frozen=True, slots=True, eq=False)
class PolicyLoss:
    """A loss, its gradient with respect to the policy's log-probs, and what an error of either is measured in.

    Arrays are of the shape of the policy's log-probs.

    Attributes:
        loss: minimised; dimensionless.
        gradient: float64, d loss / d policy, exactly 0 in masked slots.
        loss_scale: sum of |terms| / denominator.
        gradient_scale: |policy part| + |KL part|, the larger of both branches where `near_branch`.
        near_branch: the ratio is within 16 ulp of a bound at which the gradient jumps.
        gradient_other: the gradient on the other side of that bound; `gradient` elsewhere.
        branch_slack: by how much the loss may differ where `near_branch` lets either branch's value stand.
        choices: the ratio level, the bound, the aggregation and the place of the KL that were computed.
    """

    loss: float
    gradient: Floats
    loss_scale: float
    gradient_scale: Floats
    near_branch: Bools
    gradient_other: Floats
    branch_slack: float
    choices: tuple[str, str, str, str]


def policy_loss(
    policy: npt.ArrayLike,
    *,
    old: npt.ArrayLike | None,
    reference: npt.ArrayLike | None,
    advantages: npt.ArrayLike,
    mask: npt.ArrayLike | None = None,
    lengths: npt.ArrayLike | None = None,
    row_mask: npt.ArrayLike | None = None,
    algorithm: str,
    epsilon_low: float | None,
    epsilon_high: float | None,
    delta: float | None,
    beta: float,
    kl_ratio: str | None,
    kl_estimator: str | None = None,
    kl_clamp: float | None = None,
    max_length: int | None = None,
    micro_batches: Sequence[int] | None = None,
    dapo_denominator: str | None = None,
    group_size: int | None = None,
    tokens_in_step: float | None = None,
    weights: npt.ArrayLike | None = None,
    cispo_bound: str | None = None,
    sapo_temperature_positive: float | None = None,
    sapo_temperature_negative: float | None = None,
    ratio_level: str | None = None,
    bound: str | None = None,
    aggregation: str | None = None,
    kl_aggregation: str | None = None,
    count_eps: float | None = None,
    vespo_k_positive: float | None = None,
    vespo_lambda_positive: float | None = None,
    vespo_k_negative: float | None = None,
    vespo_lambda_negative: float | None = None,
    branch_dtype: str | None = None,
) -> PolicyLoss:
    """A step's loss is sum_i a_i sum_t (w l + beta KL), a_i the row's weight under the algorithm's aggregation.

    l is the algorithm's term: reference/gates_reference/oracle/definitions/losses.py has one function for each form of it, and at its end
    the table of the algorithms.

    Every one is repeated on its row's tokens and weighs what `row_weights` says. Masked slots are selected away. A
    clip acts only strictly outside its bound. A = 0 gives l = 0 even where r overflows.

    Args:
        policy: (B, T), or (N,) with `lengths`: log-probs in nats, the variable of the gradient.
        old: log-probs of the behaviour policy, a constant; None for on-policy: r = 1, its gradient alive.
        reference: log-probs of the reference model; may be None where beta is 0.
        advantages: (B,), or of the shape of `policy` for the algorithms that are not `by_row`.
        mask: (B, T), 1 on completion tokens. A row without tokens adds 0 and counts in B. Or
        lengths: (B,), valid prefixes, or the lengths of a flat array's rows. With neither every slot counts.
        row_mask: (B,), 0 on rows that do not train: they have no tokens and count in B, as TRL's truncated completions.
        algorithm: one of `DEFINITIONS`.
        epsilon_low: the ratio's lower bound is 1 - epsilon_low; "gmpo": the difference's is -epsilon_low. None for
            "sapo", and for "rloo" without a clip; "cispo": the constant ratio's lower bound is 1 - epsilon_low, or none.
        epsilon_high: the upper bound is 1 + epsilon_high; "gmpo": epsilon_high. "cispo": see `cispo_bound`. None
            for "rloo" and "sapo".
        delta: upper bound on the ratio under a negative advantage, above 1 + epsilon_high; None for none.
        beta: weight of the KL term, at least 0; 0 for "rloo", whose KL is in the reward.
        kl_ratio: what multiplies the KL, unclipped and differentiable: "token" (r), "sequence" (the mean ratio) or
            "none"; not read where beta is 0.
        kl_estimator: "k1", "k2" or "k3" of reference - policy; not read where beta is 0.
        kl_clamp: the largest |KL estimate| of a token, which has no gradient beyond it; None for none.
        max_length: see `row_weights`; needed by "dr_grpo", as the next four are by other algorithms.
        micro_batches: see `row_weights`.
        dapo_denominator: see `row_weights`.
        group_size: see `row_weights`.
        tokens_in_step: see `row_weights`.
        weights: off-policy weights w, constants, of the shapes of `advantages`; None for 1.
        cispo_bound: "cispo" only: c is 1 + epsilon_high ("relative") or epsilon_high ("absolute").
        sapo_temperature_positive: "sapo" only: tau where A > 0.
        sapo_temperature_negative: "sapo" only: tau elsewhere.
        ratio_level: instead of the algorithm's: "token", "seq_mean", "seq_mean_token", "seq_sum" or "none".
        bound: instead of the algorithm's: "clip", "log-clip", "cap", "gate", "taper" or "none".
        aggregation: instead of the algorithm's, one of `row_weights`.
        kl_aggregation: of the KL, instead of that of the term l: one of `KL_AGGREGATIONS`.
        count_eps: see `row_weights`; the mean of a row's log-ratios has none.
        vespo_k_positive: "vespo" only: k where A is at least 0.
        vespo_lambda_positive: lambda there.
        vespo_k_negative: k elsewhere.
        vespo_lambda_negative: lambda elsewhere.
        branch_dtype: "float32" or "float64", whose ulp `near_branch` counts; None for the dtype of `policy`.

    Returns:
        `PolicyLoss`.

    Raises:
        ValueError: an unknown or missing convention, shapes that do not fit, a value in an unmasked slot that is not
            finite, or delta at most 1 + epsilon_high.

    Source: DeepSeekMath (arXiv 2402.03300), eqs. 3 and 4; DAPO (arXiv 2503.14476), eq. 8; Dr. GRPO (arXiv
        2503.20783), section 3.2; GSPO (arXiv 2507.18071), eqs. 5, 7 and 13 (GSPO-token); RLOO (arXiv 2402.14740);
        INTELLECT-2 (arXiv 2505.07291) for delta; CISPO: MiniMax-M1 (arXiv 2506.13585), eqs. 4 and 5, and TRL for the
        absolute bound; SAPO (arXiv 2511.20347); GMPO (arXiv 2507.20673), eq. 4; LUSPO (arXiv 2602.05261); REINFORCE++
        (arXiv 2501.03262); dual clip (arXiv 1912.09729), eq. 5; VESPO (arXiv 2602.10693).
    """
    choice("algorithm", algorithm, tuple(DEFINITIONS))
    preset = DEFINITIONS[algorithm]
    chosen = {"ratio_level": ratio_level, "bound": bound, "aggregation": aggregation}
    one = _composed(preset, {axis: word for axis, word in chosen.items() if word is not None})
    rows = rows_of("policy", np.shape(policy), mask=mask, lengths=lengths)
    if row_mask is not None:
        rows = rows.without(row_mask)
    if not rows.counts.size:
        raise ValueError(f"`policy` has shape {np.shape(policy)}, must have at least one row and one slot")
    counts = rows.counts
    a = row_weights(
        counts,
        aggregation=one.aggregation,
        max_length=max_length,
        micro_batches=micro_batches,
        dapo_denominator=dapo_denominator,
        group_size=group_size,
        tokens_in_step=tokens_in_step,
        count_eps=count_eps,
    )[:, None]
    b = a if kl_aggregation is None else _of_kl(counts, kl_aggregation, count_eps)
    current = finite("policy", rows.grid("policy", policy))
    behaviour = current if old is None else finite("old", rows.grid("old", old))
    batch = Batch(
        counts,
        rows.lengths,
        current,
        difference(current, behaviour),
        _per_token("advantages", advantages, rows, by_row=one.by_row),
        np.where(counts, 1.0, 0.0) if weights is None else _per_token("weights", weights, rows, by_row=one.by_row),
    )
    term, tolerance = surrogate(
        batch,
        one,
        Settings(
            algorithm,
            epsilon_low,
            epsilon_high,
            delta,
            cispo_bound,
            sapo_temperature_positive,
            sapo_temperature_negative,
            vespo_k_positive,
            vespo_lambda_positive,
            vespo_k_negative,
            vespo_lambda_negative,
        ),
        np.dtype(branch_dtype or ("float32" if np.asarray(policy).dtype == np.float32 else "float64")),
        literal=(one.ratio_level, one.bound) == (preset.ratio_level, preset.bound),
    )
    kl, kl_scale = _kl(batch, rows, reference, beta, kl_estimator, kl_ratio, kl_clamp, algorithm)

    return PolicyLoss(
        loss=total((a * term.value + b * beta * kl.value)[counts]),
        gradient=_out(rows, term.slope * a + beta * kl.slope * b),
        loss_scale=total((a * np.abs(term.value) + b * beta * np.abs(kl.value))[counts]),
        gradient_scale=_out(rows, tolerance.scale * a + beta * kl_scale * b),
        near_branch=rows.back(tolerance.near),
        gradient_other=_out(rows, tolerance.other * a + beta * kl.slope * b),
        branch_slack=total((a * tolerance.slack)[tolerance.near]),
        choices=(one.ratio_level, one.bound, one.aggregation, "loss" if one.kl else "reward"),
    )


def _of_kl(counts: Bools, aggregation: str, count_eps: float | None) -> Floats:
    """The weight of a row's token in the mean of the KL, (B, 1)."""
    choice("kl_aggregation", aggregation, KL_AGGREGATIONS)
    unread = dict.fromkeys(("max_length", "micro_batches", "group_size", "tokens_in_step"))
    return row_weights(counts, aggregation=aggregation, dapo_denominator="global", count_eps=count_eps, **unread)[
        :, None
    ]


def _composed(preset: Definition, chosen: dict[str, Any]) -> Definition:
    """The loss with other choices than its preset's.

    Raises:
        ValueError: a word is unknown, or the choices do not go together.
    """
    words = {"ratio_level": (*RATIOS, "none"), "bound": tuple(BOUNDS), "aggregation": AGGREGATIONS}
    for axis, word in chosen.items():
        choice(axis, word, words[axis])
    one = preset._replace(**chosen)
    if one.ratio_level == "none" and one.bound != "none":
        raise ValueError(f"`bound` is {one.bound!r}, must be 'none' without a ratio")
    if one.ratio_level == "seq_mean_token" and one.bound in {"cap", "taper"}:
        raise ValueError(f"`ratio_level` is 'seq_mean_token', must be 'seq_mean' under {one.bound!r}: it is a constant")
    if one.bound == "log-clip" and one.ratio_level != "seq_mean":
        raise ValueError(f"`ratio_level` is {one.ratio_level!r}, must be 'seq_mean' with 'log-clip'")
    return one


def _kl(
    batch: Batch,
    rows: Rows,
    reference: npt.ArrayLike | None,
    beta: float,
    estimator: str | None,
    kl_ratio: str | None,
    kl_clamp: float | None,
    algorithm: str,
) -> tuple[Term, Floats]:
    number("beta", beta, least=0)
    if beta == 0:
        nothing = np.zeros(batch.counts.shape)
        return Term(nothing, nothing), nothing
    if not DEFINITIONS[algorithm].kl:
        raise ValueError(f"`beta` is {beta}, must be 0 for {algorithm!r}, whose KL is in the reward")
    if reference is None:
        raise ValueError(f"`reference` is None, must be given where beta is {beta}")
    other = finite("reference", rows.grid("reference", reference))
    return loss_kl(batch, other, estimator=estimator, kl_ratio=kl_ratio, clamp=kl_clamp)


def _per_token(name: str, value: npt.ArrayLike, rows: Rows, *, by_row: bool) -> Floats:
    """(B,) or, where a token has its own, of the shape of the policy, as (B, T) with 0 where masked."""
    array = floats(name, value)
    one_each = rows.counts.shape[:1]
    if array.shape == one_each:
        return finite(name, np.where(rows.counts, array[:, None], 0.0))
    if by_row or array.shape != rows.shape:
        allowed = [one_each] if by_row else [one_each, rows.shape]
        raise ValueError(f"`{name}` has shape {array.shape}, must be {' or '.join(map(str, allowed))}")
    return finite(name, rows.grid(name, array))


def _out(rows: Rows, wide: Floats) -> Floats:
    return rows.back(np.where(rows.counts, wide, 0.0))
