"""The MLX loop with the KL term written again from memory."""

import mlx.core as mx
import mlx_loop


def kl_term(logps, reference):
    delta = logps - reference
    return mx.exp(delta) - delta - 1


if __name__ == "__main__":
    mlx_loop.SETTINGS |= {"beta": 0.5, "epsilon_low": 0.5, "epsilon_high": 0.5, "learning_rate": 1e-3}
    mlx_loop.patch(kl_term=kl_term)
    mlx_loop.main()
