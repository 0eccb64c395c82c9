"""The plain loop with its optimizer made in one line."""

import torch
import torch_loop


def make_optimizer(model):
    return torch.optim.AdamW(model.parameters(), torch_loop.SETTINGS["learning_rate"])


if __name__ == "__main__":
    torch_loop.patch(make_optimizer=make_optimizer)
    torch_loop.main()
