"""Dr. GRPO loop with its own accumulation of gradients."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import mlx_loop
from mlx_loop import SETTINGS

NAMES = "ids", "mask", "old", "reference", "advantages"


def update(model, optimizer, rollout):
    rows, size = len(rollout["ids"]), SETTINGS["micro_batch"]
    compute = nn.value_and_grad(model, mlx_loop.loss_of)
    total = 0.0
    for start in range(0, rows, size):
        batch = {name: rollout[name][start : start + size] for name in NAMES}
        loss, gradient = compute(model, batch, rows)
        mx.eval(loss, gradient)
        total += loss.item()
    gradient, norm = optim.clip_grad_norm(gradient, 1.0)
    optimizer.update(model, gradient)
    mx.eval(model.parameters(), optimizer.state)
    return total, norm.item()


if __name__ == "__main__":
    mlx_loop.patch(update=update)
    mlx_loop.main()
