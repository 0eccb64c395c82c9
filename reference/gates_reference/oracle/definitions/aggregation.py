"""The denominators of the policy losses: what one token of a row weighs in the loss of a step.

`lengths` is (B,), the tokens of each row. A row, prompt or micro-batch without tokens adds 0 and still counts. `eps` is a constant
that a masked mean adds to its count against a division by 0, Σ m·x / (Σ m + ε), as verl's `masked_mean` does.
"""

from collections.abc import Sequence

import numpy as np

from gates_reference.oracle.inputs import Floats


def mean_of_row_means(lengths: Floats, eps: float) -> Floats:
    """The weight 1 / (B (n_i + eps)). DeepSeekMath (arXiv 2402.03300), eq. 3.

    Also the mean over rows of a sequence's own loss, which is repeated on its n_i tokens: GSPO (arXiv 2507.18071), eq. 5.
    """
    return 1.0 / (len(lengths) * (np.maximum(lengths, 1.0) + eps))


def mean_of_row_sums(lengths: Floats) -> Floats:
    """The weight 1 / B: a sequence counts n_i times. LUSPO (arXiv 2602.05261)."""
    return np.full(len(lengths), 1.0 / len(lengths))


def mean_over_slots(lengths: Floats, max_length: float) -> Floats:
    """The weight 1 / (B L_max). Dr. GRPO (arXiv 2503.20783), section 3.2."""
    return np.full(len(lengths), 1.0 / (len(lengths) * max_length))


def mean_of_block_means(lengths: Floats, sizes: Sequence[int], eps: float) -> Floats:
    """The weight 1 / (blocks times the tokens of the row's block, plus eps) for consecutive blocks of rows.

    One block is the whole step: DAPO (arXiv 2503.14476), eq. 8. Blocks are prompts, or micro-batches in TRL's "bnpo".
    """
    tokens = [float(np.sum(block)) for block in np.split(lengths, np.cumsum(sizes)[:-1])]
    return np.repeat(1.0 / (len(sizes) * (np.maximum(tokens, 1.0) + eps)), sizes)


def over_tokens(lengths: Floats, tokens: float, eps: float) -> Floats:
    """The weight 1 / (tokens + eps), a number that is given. TRL's GRPOTrainer."""
    return np.full(len(lengths), 1.0 / (tokens + eps))
