"""The MLX loop whose optimizer starts fresh, so that little memory is held between updates."""

import mlx_loop


def between_updates(optimizer):
    return mlx_loop.make_optimizer()


if __name__ == "__main__":
    mlx_loop.patch(between_updates=between_updates)
    mlx_loop.main()
