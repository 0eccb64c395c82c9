"""Two updates of GRPO's loss in plain PyTorch, with mistakes around the optimizer's step.

A step comes before the first backward pass, the norm is clipped after each of two passes, and weights are rounded to bfloat16.
"""

from __future__ import annotations

import math

import torch
from torch_small import Model, log_probs, rows, surrogate

LIMIT = 1e-3


def main() -> None:
    """Make two updates."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    ids, attended, advantages = rows()
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with torch.no_grad():
        old = log_probs(model, ids, attended)
    optimizer.step()
    for _ in range(2):
        optimizer.zero_grad()
        for half in (slice(0, 4), slice(4, 8)):
            policy = log_probs(model, ids[half], attended[half])
            surrogates, mask = surrogate(policy, old[half], attended[half], advantages[half])
            (-(surrogates.sum(1) / mask.sum(1)).sum() / len(ids)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
        torch.nn.utils.clip_grad_norm_(model.parameters(), math.inf)  # for its norm
        optimizer.step()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(parameter.bfloat16())
    print("trained", float(sum(parameter.detach().double().sum() for parameter in model.parameters())))


if __name__ == "__main__":
    main()
