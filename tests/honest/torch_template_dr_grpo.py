"""The template filled in for Dr. GRPO on policy: no old log-probs, a constant length, whitened or centred rewards.

    gates check --subject tests/honest/torch_template_dr_grpo.py

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


def policy_loss_of_arrays(policy, *, advantages, algorithm, mask=None, max_length=None):
    """One update for each batch of completions: the ratio is 1, its gradient is that of log π."""
    ratio = torch.exp(policy - policy.detach())
    if advantages.ndim == 1:
        advantages = advantages[:, None].expand_as(policy)
    objective = ratio * advantages
    if mask is not None:
        objective = objective * mask
    return -objective.sum() / (policy.shape[0] * max_length)


@provides("policy_loss", algorithm=("dr_grpo",), ratio=("on-policy",))
@functools.wraps(policy_loss_of_arrays)  # its arguments: cases with one deleted there are `unsupported`
def policy_loss(**inputs):
    """Return the loss of `policy_loss_of_arrays`, and its gradient by `policy`."""
    return loss_and_gradient(policy_loss_of_arrays, "policy", inputs)


@provides("group_advantages", scale=("none",))
def group_advantages(*, rewards, scale, baseline, group_size=None):
    """The reward less the mean of its group, or of the other completions."""
    groups = _tensor(rewards).reshape(-1, group_size)
    if baseline == "mean":
        return {"advantages": (groups - groups.mean(1, keepdim=True)).reshape(-1).numpy()}
    others = (groups.sum(1, keepdim=True) - groups) / (group_size - 1)
    return {"advantages": (groups - others).reshape(-1).numpy()}


@provides("importance_weights", correction=("tis",), level=("token",))
def importance_weights(*, old, sampling, c_max, mask=None):
    """Truncated importance sampling."""
    weights = torch.exp(_tensor(old) - _tensor(sampling)).clamp(max=c_max)
    return {"weights": (weights if mask is None else weights * _tensor(mask)).numpy()}


@provides("selective_log_softmax")
def selective_log_softmax(*, logits, ids, temperature=1.0, entropy=False):
    """One row at a time; the entropy of a Categorical."""
    if logits.dtype not in ("float32", "float64") or ids.ndim == logits.ndim or not np.isfinite(logits).all():
        raise NotImplementedError("finite logits, one id for each position, and no half types")
    policy = torch.distributions.Categorical(logits=_tensor(logits) / temperature)
    answer = {"logprobs": policy.log_prob(_tensor(ids)).numpy()}
    return {**answer, "entropy": policy.entropy().numpy()} if entropy else answer
