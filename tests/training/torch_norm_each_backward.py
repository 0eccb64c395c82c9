"""GRPO loop that keeps the gradient's norm in bounds from the first micro-batch on."""

import torch
import torch_loop
from torch_loop import SETTINGS


def after_backward(model):
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), SETTINGS["max_grad_norm"])


if __name__ == "__main__":
    SETTINGS["max_grad_norm"] = 0.5
    torch_loop.patch(after_backward=after_backward)
    torch_loop.main()
