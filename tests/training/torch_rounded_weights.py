"""GRPO loop whose weights are kept in bfloat16 and computed with in float32."""

import torch
import torch_loop
from torch_loop import SETTINGS

load = torch_loop.load
apply = torch_loop.apply


@torch.no_grad()
def store(model):
    for weight in model.parameters():
        weight.copy_(weight.bfloat16())
    return model


def load_stored(folder):
    return store(load(folder))


def apply_and_store(model, optimizer):
    norm = apply(model, optimizer)
    store(model)
    return norm


if __name__ == "__main__":
    SETTINGS["learning_rate"] = 3e-4
    torch_loop.patch(load=load_stored, apply=apply_and_store)
    torch_loop.main()
