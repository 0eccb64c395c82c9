"""The weight of a row's token in the loss of a step, for one aggregation and its constants."""

from collections.abc import Sequence

import numpy as np

from gates_reference.oracle.definitions import aggregation as definition
from gates_reference.oracle.inputs import Bools, Floats, choice, positive

AGGREGATIONS = ("row-mean", "row-sum", "token-mean", "micro-batch", "constant", "width")
DAPO_DENOMINATORS = ("global", "group", "trl")


def row_weights(
    mask: Bools,
    *,
    aggregation: str,
    max_length: int | None,
    micro_batches: Sequence[int] | None,
    dapo_denominator: str | None,
    group_size: int | None,
    tokens_in_step: float | None,
    count_eps: float | None = None,
) -> Floats:
    """Every aggregation is a weighted sum of token losses, with one weight per row.

    "row-mean": 1 / (B n_i); a loss of the whole sequence, repeated on its n_i tokens, is then averaged over rows.
    "row-sum": 1 / B, so that such a loss counts n_i times. "constant": 1 / (B max_length). "width": 1 / (B T).
    "token-mean": 1 / (all tokens), or per prompt 1 / (P tokens of the prompt), or 1 / tokens_in_step.
    "micro-batch": 1 / (M tokens of the micro-batch).

    Args:
        mask: (B, T), 1 on completion tokens. A row, prompt or micro-batch without tokens adds 0 and still counts.
        aggregation: one of the above.
        max_length: "constant" only: L_max, the configured constant, in tokens.
        micro_batches: "micro-batch" only: the number of rows of each micro-batch, in order; sums to B.
        dapo_denominator: "token-mean" only: "global", "group" or "trl".
        group_size: "token-mean" by "group" only: rows per prompt.
        tokens_in_step: "token-mean" by "trl" only: tokens of the generation batch times this window's share of it.
        count_eps: epsilon, added to every count of tokens above; None for none.

    Returns:
        (B,) float64, 0.0 for a row without tokens.

    Raises:
        ValueError: a parameter that the aggregation needs is missing or does not fit.

    Source: DeepSeekMath (arXiv 2402.03300), eq. 3; DAPO (arXiv 2503.14476), eq. 8; Dr. GRPO (arXiv 2503.20783),
        section 3.2; GSPO (arXiv 2507.18071), eq. 5; LUSPO (arXiv 2602.05261); TRL's GRPOTrainer ("micro-batch", "trl").
    """
    lengths = np.sum(mask, axis=1).astype(np.float64)
    eps = 0.0 if count_eps is None else positive("count_eps", count_eps)
    if aggregation == "constant":
        weights = definition.mean_over_slots(lengths, positive("max_length", max_length))
    elif aggregation == "width":
        weights = definition.mean_over_slots(lengths, mask.shape[1])
    elif aggregation == "micro-batch":
        weights = definition.mean_of_block_means(lengths, _blocks("micro_batches", micro_batches, len(mask)), eps)
    elif aggregation == "row-sum":
        weights = definition.mean_of_row_sums(lengths)
    elif aggregation == "row-mean":
        weights = definition.mean_of_row_means(lengths, eps)
    elif (
        choice("aggregation", aggregation, AGGREGATIONS)
        and choice("dapo_denominator", dapo_denominator, DAPO_DENOMINATORS) == "trl"
    ):
        weights = definition.over_tokens(lengths, positive("tokens_in_step", tokens_in_step), eps)
    elif dapo_denominator == "group":
        size = int(positive("group_size", group_size))
        sizes = _blocks("group_size", [size] * (len(mask) // size), len(mask))
        weights = definition.mean_of_block_means(lengths, sizes, eps)
    else:
        weights = definition.mean_of_block_means(lengths, [len(mask)], eps)
    return np.where(lengths > 0, weights, 0.0)


def _blocks(name: str, sizes: Sequence[int] | None, rows: int) -> Sequence[int]:
    if not sizes or min(sizes) < 1 or sum(sizes) != rows:
        raise ValueError(f"`{name}` gives blocks of {sizes} rows, must be positive and sum to {rows} rows")
    return sizes
