"""The plain loop with the norm of the gradient limited after each backward pass."""

import torch
import torch_loop


def after_backward(model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), torch_loop.SETTINGS["max_grad_norm"])


def apply(model, optimizer):
    optimizer.step()
    return 0.0


if __name__ == "__main__":
    torch_loop.patch(after_backward=after_backward, apply=apply)
    torch_loop.main()
