"""The MLX loop with the simple estimate of the KL, as other loops use it in the reward."""

import mlx_loop


def kl_term(logps, reference):
    return logps - reference


if __name__ == "__main__":
    mlx_loop.patch(kl_term=kl_term)
    mlx_loop.main()
