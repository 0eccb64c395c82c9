"""How tokens are weighted in the loss of a step: every aggregation is a weighted sum of token losses.

| name | weight of a token of row i | source |
|---|---|---|
| row-mean | 1 / (B n_i) | GRPO, arXiv 2402.03300, eq. 3 |
| row-sum | 1 / B | LUSPO, arXiv 2602.05261 |
| constant | 1 / (B L_max) | Dr. GRPO, arXiv 2503.20783, section 3.2 |
| global | 1 / (tokens of the step) | DAPO as verl computes it |
| group | 1 / (P tokens of the row's group) | DAPO, arXiv 2503.14476, eq. 8 |
| trl | 1 / (tokens of the generation batch times the step's share of it) | TRL's loss_type "dapo" |
| micro-batch | 1 / (micro-batches · tokens of the row's micro-batch) | TRL's loss_type "bnpo" |

All but the last divide by counts of the whole step, so that its micro-batches add up to it. A row without tokens adds 0 and is
counted in B.
"""

from typing import Literal

import mlx.core as mx
import numpy as np

from reference.trainer.algorithms.protocol import MicroBatch, StepTotals

Aggregation = Literal["row-mean", "row-sum", "constant", "global", "group", "trl", "micro-batch"]


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
    one_for_all = {
        "row-sum": totals.rows,
        "constant": totals.rows * totals.max_length,
        "global": totals.tokens,
        "trl": totals.window_tokens,
    }[aggregation]
    return mx.full(counts.shape, float(one_for_all or 0))
