"""The MLX loop that learns from better answers."""

import mlx.core as mx
import mlx_loop

centered = mlx_loop.advantages_of


def advantages_of(rewards):
    return mx.maximum(centered(rewards), 0.0)


if __name__ == "__main__":
    mlx_loop.patch(advantages_of=advantages_of)
    mlx_loop.main()
