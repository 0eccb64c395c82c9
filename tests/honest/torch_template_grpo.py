"""The template filled in for a small GRPO library with one clip width and a masked mean over rows.

    gates check --subject tests/honest/torch_template_grpo.py

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


def masked_mean(values, mask, dim=-1):
    """Mean over the tokens of a row; a row without tokens gives 0."""
    return (values * mask).sum(dim) / mask.sum(dim).clamp(min=1)


def policy_loss_of_arrays(
    policy,
    *,
    advantages,
    algorithm,
    mask=None,
    old=None,
    reference=None,
    epsilon_low=None,
    beta=0.0,
):
    """GRPO with the unbiased estimate of the KL in the loss."""
    mask = torch.ones_like(policy) if mask is None else mask.to(policy.dtype)
    old = policy.detach() if old is None else old
    if advantages.dim() == 1:
        advantages = advantages.unsqueeze(1)
    ratio = torch.exp(policy - old)
    clipped = torch.clamp(ratio, 1 - epsilon_low, 1 + epsilon_low)
    loss = -torch.min(ratio * advantages, clipped * advantages)
    if beta > 0:
        log_ratio = reference - policy
        loss = loss + beta * (log_ratio.exp() - log_ratio - 1)
    return masked_mean(loss, mask).mean()


@provides("policy_loss", algorithm=("grpo",), kl_estimator=("k3",), kl_ratio=("none",))
@functools.wraps(policy_loss_of_arrays)  # its arguments: cases with one deleted there are `unsupported`
def policy_loss(**inputs):
    """Return the loss of `policy_loss_of_arrays`, and its gradient by `policy`."""
    return loss_and_gradient(policy_loss_of_arrays, "policy", inputs)


@provides("group_advantages", scale=("group",), ddof=(1,), eps=(1e-4,), eps_mode=("add",), baseline=("mean",))
def group_advantages(*, rewards, group_size=None):
    """(R − mean) / (std + 1e-4) of each prompt's completions."""
    grouped = _tensor(rewards).view(-1, group_size)
    advantages = (grouped - grouped.mean(dim=1, keepdim=True)) / (grouped.std(dim=1, keepdim=True) + 1e-4)
    return {"advantages": advantages.flatten().numpy()}


@provides("token_kl", estimator=("k3",))
def token_kl(*, policy, estimator, reference=None, mask=None):
    """k3, 0 in padding."""
    log_ratio = _tensor(reference) - _tensor(policy)
    kl = log_ratio.exp() - log_ratio - 1
    return {"kl": (kl if mask is None else kl.masked_fill(~_tensor(mask), 0.0)).numpy()}


@provides("selective_log_softmax")
def selective_log_softmax(*, logits, ids):
    """log_softmax, then gather."""
    if logits.dtype not in ("float32", "float64") or ids.ndim == logits.ndim:
        raise NotImplementedError("one id for each position, and no half types")
    logps = torch.log_softmax(_tensor(logits), dim=-1)
    return {"logprobs": logps.gather(-1, _tensor(ids).unsqueeze(-1)).squeeze(-1).numpy()}
