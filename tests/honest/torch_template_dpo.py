"""The template filled in for a small DPO library: F.logsigmoid of halves, KTO, nothing but β.

    gates check --subject tests/honest/torch_template_dpo.py

Gates loads this file in a process of its own, in this interpreter or in the one that `--python` names. Nothing of Gates
is needed there: only NumPy, torch and your library. Fill in what your library has, by calling it; repair nothing
here, or the repair is judged. Delete the arguments with a default that your code does not have: a case that needs one
is `unsupported` then, as is what raises NotImplementedError; neither is ever a pass. `gates ops` lists every op.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch.nn import functional

VERSIONS: dict[str, str] = {"numpy": np.__version__, "torch": torch.__version__}  # shown in results; add your library's
# By a gate's name (`gates explain GATE` ends with it) where your documentation says that yours differs, such as
# "policy_loss[grpo]": "README, section Loss". A failure there is shown as `departs`; it still fails the run.
DEPARTURES_DOCUMENTED: dict[str, str] = {}
OPS: dict[str, Any] = {}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {}


def provides(op: str, **conventions: tuple[Any, ...]) -> Any:
    """Declare that a function is an op, with the choices that it has: a case that needs another one is `unsupported`.

    A convention that is not named is asked in every choice, but those that are asked only of a subject that declares
    them: their lines say so. For one call, `raise NotImplementedError("why")` says `unsupported` too.
    """

    def register(function: Any) -> Any:
        if op in OPS:
            raise ValueError(f"{op} is provided twice")
        OPS[op], CONVENTIONS[op] = function, conventions
        return function

    return register


def loss_and_gradient(function: Any, variable: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """Call a loss with tensors; return its value, and autograd's gradient by the variable in the variable's dtype."""
    given = {name: _tensor(value) for name, value in inputs.items()}
    leaf = given.pop(variable).requires_grad_()
    loss = function(leaf, **given)
    (gradient,) = torch.autograd.grad(loss, leaf)
    return {"loss": loss.item(), "gradient": gradient.numpy()}


def _tensor(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    return torch.from_numpy(value.astype(value.dtype.newbyteorder("="), order="C"))  # a copy: nothing of ours changes


def completion_logps(token_logps, mask):
    """Sum over the completion."""
    return torch.where(mask, token_logps, torch.zeros_like(token_logps)).sum(dim=1)


def preference_loss_of_arrays(policy, *, reference, mask, loss, beta):
    """DPO of arXiv 2305.18290."""
    rewards = beta * (completion_logps(policy, mask) - completion_logps(reference, mask))
    chosen, rejected = rewards[::2], rewards[1::2]
    return -functional.logsigmoid(chosen - rejected).mean()


@provides("preference_loss", loss=("dpo",))
@functools.wraps(preference_loss_of_arrays)  # its arguments: cases with one deleted there are `unsupported`
def preference_loss(**inputs):
    """Return the loss of `preference_loss_of_arrays`, and its gradient by `policy`."""
    return loss_and_gradient(preference_loss_of_arrays, "policy", inputs)


def kto_loss_of_arrays(policy, *, reference, mask, desirable, mismatched, beta, desirable_weight, undesirable_weight):
    """KTO of arXiv 2402.01306."""
    log_ratio = completion_logps(policy, mask) - completion_logps(reference, mask)
    baseline = functional.relu(mismatched.mean())
    value = torch.where(
        desirable,
        desirable_weight * (1 - torch.sigmoid(beta * (log_ratio - baseline))),
        undesirable_weight * (1 - torch.sigmoid(beta * (baseline - log_ratio))),
    )
    return value.mean()


@provides("kto_loss")
@functools.wraps(kto_loss_of_arrays)  # its arguments: cases with one deleted there are `unsupported`
def kto_loss(**inputs):
    """Return the loss of `kto_loss_of_arrays`, and its gradient by `policy`."""
    return loss_and_gradient(kto_loss_of_arrays, "policy", inputs)


@provides("best_of_n")
def best_of_n(*, scores, group_size):
    """The best completion of each prompt."""
    values, rows = _tensor(scores).view(-1, group_size).max(dim=1)
    return {"rows": (rows + torch.arange(len(values)) * group_size).numpy()}
