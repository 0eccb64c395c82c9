"""The MLX loop as two ranks would run it: each takes half of the rows, then the gradients are averaged."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import mlx_loop
from mlx.utils import tree_map
from mlx_loop import loss_of

RANKS = 2


def update(model, optimizer, rollout):
    rows = len(rollout["ids"])  # the rows of all ranks
    names = "ids", "mask", "old", "reference", "advantages"
    size, total, sums = rows // RANKS, 0.0, None
    for rank in range(RANKS):
        batch = {name: rollout[name][rank * size : (rank + 1) * size] for name in names}
        loss, grads = nn.value_and_grad(model, loss_of)(model, batch, rows)
        sums = grads if sums is None else tree_map(lambda a, b: a + b, sums, grads)
        total += loss.item()
    grads, norm = optim.clip_grad_norm(tree_map(lambda value: value / RANKS, sums), 1.0)
    optimizer.update(model, grads)
    mx.eval(model.parameters(), optimizer.state)
    return total, norm.item()


if __name__ == "__main__":
    mlx_loop.patch(update=update)
    mlx_loop.main()
