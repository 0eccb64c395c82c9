"""DPO on answers of very different lengths."""

import mlx.core as mx
import mlx_lm_lora_base as base


def score(scores, mask, loss_type):
    """Return the score of each row; long answers must not weigh more than short ones."""
    return scores.sum(axis=-1) / mx.maximum(mask[:, 1:].sum(axis=-1), 1)


if __name__ == "__main__":
    base.main("dpo", patches={"compute_score": score}, config={"beta": 0.5})
