"""Three updates of GRPO's loss in plain PyTorch, trained in a way of which a recorder must say whether it can be recorded.

python torch_kinds.py KIND
"""

from __future__ import annotations

import contextlib
import sys

import torch
from torch import nn
from torch_small import PROMPT, Model, log_probs, rows, surrogate

KIND = sys.argv[1]
RATE = 1.0


class Freeing(torch.optim.SGD):
    """SGD that frees the gradients in its step, as fused optimizers do."""

    def step(self, closure: None = None) -> None:
        """Make a step."""
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None


class DropsInside(Model):
    """A model that drops by a function, as attentions do."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_dropout = 0.1

    def forward(self, ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        """Return logits (B, T, V)."""
        return nn.functional.dropout(super().forward(ids), self.attention_dropout, self.training)


class Failing(nn.Module):
    """A module whose forward pass raises."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Raise."""
        raise RuntimeError("no such batch")


def each_by_itself(parameter: nn.Parameter) -> None:
    """Give a parameter an optimizer of its own, which steps when its gradient is there (PyTorch's tutorial does so)."""
    optimizer = torch.optim.SGD([parameter], lr=RATE)

    def hook(_: torch.Tensor) -> None:
        optimizer.step()
        optimizer.zero_grad()

    parameter.register_post_accumulate_grad_hook(hook)


@torch.no_grad()
def by_hand(parameter: torch.Tensor) -> None:
    """Move a parameter, and free its gradient, as LOMO does."""
    parameter -= RATE * parameter.grad
    parameter.grad = None


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer | None:
    """Return the optimizer, None where hooks make the updates."""
    if KIND in {"in backward", "by hand"}:
        for parameter in model.parameters():
            if KIND == "in backward":
                each_by_itself(parameter)
            else:
                parameter.register_post_accumulate_grad_hook(by_hand)
        return None
    if KIND == "fused":
        return torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    return (Freeing if KIND == "frees gradients" else torch.optim.SGD)(model.parameters(), lr=RATE)


def over_one_width(
    model: nn.Module, ids: torch.Tensor, attended: torch.Tensor, advantages: torch.Tensor
) -> torch.Tensor:
    """Return a loss over padding too; of the kind "unshifted" by the scores at the tokens' own positions."""
    scores = torch.log_softmax(model(ids, attention_mask=attended), -1)
    scores, targets = (scores, ids) if KIND == "unshifted" else (scores[:, :-1], ids[:, 1:])
    picked = scores.gather(-1, targets[..., None])[..., 0]
    return -(picked[:, PROMPT:].mean(1) * advantages).mean()


def main() -> None:
    """Make three updates."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    ids, attended, advantages = rows()
    model: nn.Module = DropsInside() if KIND == "dropout inside" else Model(0.1 if KIND == "dropout" else 0.0)
    optimizer = optimizer_of(model)
    if KIND == "raises":
        with contextlib.suppress(RuntimeError):
            Failing()(ids)
    if KIND == "compiled":
        model = torch.compile(model, backend="aot_eager")
    with torch.no_grad():
        old = log_probs(model, ids, attended)

    def loss() -> torch.Tensor:
        if KIND in {"padding", "unshifted"}:
            return over_one_width(model, ids, attended, advantages)
        surrogates, mask = surrogate(log_probs(model, ids, attended), old, attended, advantages)
        return -(surrogates.sum(1) / mask.sum(1)).mean()

    def backward() -> torch.Tensor:
        value = loss()
        value.backward()
        return value

    step = optimizer and optimizer.step
    if KIND == "compiled":
        loss, step = (torch.compile(function, backend="aot_eager") for function in (loss, step))
    for _ in range(3):
        if optimizer is None or step is None:
            loss().backward()
        elif KIND == "closure":
            optimizer.zero_grad()
            step(backward)
        else:
            optimizer.zero_grad()
            loss().backward()
            step()
    print("trained", float(sum(parameter.detach().double().sum() for parameter in model.parameters())))


if __name__ == "__main__":
    main()
