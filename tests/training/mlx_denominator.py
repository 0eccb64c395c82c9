"""The MLX loop with a denominator that fits the micro-batch."""

import mlx_loop


def aggregate(loss, mask, rows_of_step):
    mean = mask.sum(axis=1).mean()
    return (loss * mask).sum() / (rows_of_step * mean)


if __name__ == "__main__":
    mlx_loop.patch(aggregate=aggregate)
    mlx_loop.main()
