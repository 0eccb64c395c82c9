"""The plain MLX loop with rewards given per token, as PPO's code has them."""

import mlx.core as mx
import numpy as np
import mlx_loop as base


class Batch:
    mask = None


collate_rows = base.collate
advantages_of_rows = base.advantages_of


def collate(prompts, texts):
    ids, Batch.mask = collate_rows(prompts, texts)
    return ids, Batch.mask


def advantages_of(rewards):
    scores = np.zeros(Batch.mask.shape, dtype=np.float32)
    scores[:, -1] = rewards
    scores = mx.array(scores) * Batch.mask
    return advantages_of_rows(scores.sum(axis=-1).tolist())


base.patch(collate=collate, advantages_of=advantages_of)

if __name__ == "__main__":
    base.main()
