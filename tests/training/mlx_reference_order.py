"""Dr. GRPO loop whose frozen model scores the longest rows first."""

import mlx.core as mx
import mlx_loop
from mlx.utils import tree_flatten

score = mlx_loop.token_logps


def token_logps(model, ids):
    if tree_flatten(model.trainable_parameters()):
        return score(model, ids)
    order = mx.argsort(-(ids != 0).sum(axis=1))
    scores = score(model, ids[order])
    return scores


if __name__ == "__main__":
    mlx_loop.patch(token_logps=token_logps)
    mlx_loop.main()
