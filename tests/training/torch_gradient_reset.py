"""The plain loop with gradients reset once for each rollout."""

import torch_loop


def zero_grad(optimizer):
    """A rollout ends when its last update is done; the buffers are reset with the next rollout."""


if __name__ == "__main__":
    torch_loop.patch(zero_grad=zero_grad)
    torch_loop.main()
