"""What one token of a completion weighs in the loss of a whole step: every aggregation is a weighted sum of token losses.

| name | weight of a token of row i | source |
|---|---|---|
| row-mean | 1 / (B n_i) | GRPO, arXiv 2402.03300, eq. 3 |
| row-sum | 1 / B | LUSPO, arXiv 2602.05261 |
| constant | 1 / (B L_max) | Dr. GRPO, arXiv 2503.20783, section 3.2 |
| global | 1 / (tokens of the step) | DAPO as verl computes it |
| group | 1 / (P tokens of the row's group) | DAPO, arXiv 2503.14476, eq. 8 |
| trl | 1 / (tokens of the generation batch times the step's share of it) | TRL's loss_type "dapo" |
| micro-batch | 1 / (parts tokens of the row's part) | TRL's loss_type "bnpo" |

All but the last divide by counts of the whole step, so that the parts of a step add up to it. A row without tokens adds 0
and counts in B.
"""

from typing import Literal

import mlx.core as mx
import numpy as np

from reference.trainer.algorithms.protocol import Scored, Whole

Aggregation = Literal["row-mean", "row-sum", "constant", "global", "group", "trl", "micro-batch"]


def row_weights(aggregation: str, part: Scored, whole: Whole, counts: mx.array) -> mx.array:
    """The weight of a token of each row (B, 1), float32; `counts` (B, 1) are the rows' tokens.

    Raises:
        ValueError: a count of the whole step that the aggregation divides by is not given.
    """
    divisor = _divisor(aggregation, part, whole, counts)
    return mx.where(counts > 0, 1.0 / mx.maximum(divisor, 1e-30), 0.0)


def _divisor(aggregation: str, part: Scored, whole: Whole, counts: mx.array) -> mx.array:
    if aggregation == "row-mean":
        return whole.rows * counts
    if aggregation == "group":
        tokens = len(whole.group_tokens) * np.asarray(whole.group_tokens, np.float64)[part.groups]
        return mx.array(tokens.astype(np.float32))[:, None]
    if aggregation == "micro-batch":
        return whole.parts * mx.broadcast_to(counts.sum(), counts.shape)
    if aggregation == "trl" and whole.window_tokens is None:
        raise ValueError(
            "aggregation is 'trl' and Whole.window_tokens is None, must be the tokens of the generation batch times "
            "the step's share of it; or choose 'global'"
        )
    one_for_all = {
        "row-sum": whole.rows,
        "constant": whole.rows * whole.max_length,
        "global": whole.tokens,
        "trl": whole.window_tokens,
    }[aggregation]
    return mx.full(counts.shape, float(one_for_all or 0))
