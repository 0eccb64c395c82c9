"""Dr. GRPO loop with importance weights."""

import mlx.core as mx
import mlx_loop


def weights_of(logps, old, mask):
    """Return the weight of each token."""
    return mx.exp((old - logps) * mask)


if __name__ == "__main__":
    mlx_loop.patch(weights_of=weights_of)
    mlx_loop.main()
