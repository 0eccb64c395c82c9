"""Dr. GRPO loop with a warm-up of the learning rate."""

import mlx.optimizers as optim
import mlx_loop
from mlx_loop import SETTINGS

WARMUP = 2


def make_optimizer():
    schedule = optim.linear_schedule(0.0, SETTINGS["learning_rate"], WARMUP)
    return optim.AdamW(schedule, weight_decay=0.0)


if __name__ == "__main__":
    SETTINGS["learning_rate"] = 1e-3
    SETTINGS["updates"] = 3
    mlx_loop.patch(make_optimizer=make_optimizer)
    mlx_loop.main()
