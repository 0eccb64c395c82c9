"""Plain PyTorch programs of the losses, in the dtype of the data, with autograd's gradients.

gates check loss --subject tests/honest/torch_loss.py --python PYTHON_WITH_TORCH
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

VERSIONS = {"torch": torch.__version__}
TOKEN = ("grpo", "dapo", "bnpo-trl", "dr_grpo")
CLIPS = {"grpo": (0.2, 0.2), "dapo": (0.2, 0.28), "gspo": (3e-4, 4e-4)}
DEFAULTS = {"cispo_bound": "relative", "sapo_temperature_positive": 1.0, "sapo_temperature_negative": 1.05}
torch.set_num_threads(1)


def _tensor(x: Any) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(x))


def _grid(x: dict[str, Any]) -> torch.Tensor:
    shape = np.shape(x["policy"])
    if x.get("lengths") is not None:
        lengths = _tensor(x["lengths"])
        width = int(lengths.max()) if len(shape) == 1 else shape[1]
        return torch.arange(width) < lengths[:, None]
    mask = torch.ones(shape, dtype=torch.bool) if x.get("mask") is None else _tensor(x["mask"])
    return mask & _tensor(x["row_mask"])[:, None] if x.get("row_mask") is not None else mask


def _wide(values: Any, mask: torch.Tensor) -> torch.Tensor:
    """Return numbers of tokens as (B, T), those of rows as (B, 1)."""
    one = _tensor(values)
    if one.shape == mask.shape:
        return one
    if one.shape == mask.shape[:1]:
        return one[:, None]
    return torch.zeros(mask.shape, dtype=one.dtype).masked_scatter(mask, one)


def ppo(r: torch.Tensor, advantages: torch.Tensor, x: dict[str, Any]) -> torch.Tensor:
    clipped = torch.clamp(r, 1 - x["epsilon_low"], 1 + x["epsilon_high"])
    if x.get("delta") is not None:
        r = torch.clamp(r, max=x["delta"])
    return -torch.min(r * advantages, clipped * advantages)


def surrogate(  # noqa: PLR0911  one for each algorithm
    lp: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor, x: dict[str, Any]
) -> torch.Tensor:
    algorithm, log_ratio = x["algorithm"], lp - old
    n = mask.sum(-1, keepdim=True).clamp(min=1)
    if algorithm in TOKEN:
        return ppo(log_ratio.exp(), advantages, x)
    if algorithm in ("gspo", "luspo"):
        return ppo(((log_ratio * mask).sum(-1, keepdim=True) / n).exp(), advantages, x)
    if algorithm == "gspo-token":
        level = ((log_ratio * mask).sum(-1, keepdim=True) / n).detach()
        return ppo(torch.exp(lp - lp.detach() + level), advantages, x)
    if algorithm == "rloo":
        r = (log_ratio * mask).sum(-1, keepdim=True).exp()
        return ppo(r, advantages, x) if x["epsilon_low"] is not None else -r * advantages
    if algorithm == "cispo":
        cap = x["epsilon_high"] + (1.0 if x["cispo_bound"] == "relative" else 0.0)
        return -torch.clamp(log_ratio.exp(), max=cap).detach() * advantages * lp
    if algorithm == "sapo":
        ones = torch.ones_like(advantages)  # torch.where of two Python numbers is float32, whatever the data is
        tau = torch.where(advantages > 0, ones * x["sapo_temperature_positive"], ones * x["sapo_temperature_negative"])
        return -torch.sigmoid(tau * (log_ratio.exp() - 1)) * 4 / tau * advantages
    q = torch.where(
        advantages > 0, torch.clamp(log_ratio, max=x["epsilon_high"]), torch.clamp(log_ratio, min=-x["epsilon_low"])
    )
    return -((q * mask).sum(-1, keepdim=True) / n).exp() * advantages


def divergence(lp: torch.Tensor, old: torch.Tensor, ref: torch.Tensor, mask: torch.Tensor, x: dict[str, Any]) -> Any:
    d = ref - lp
    kl = {"k1": -d, "k2": d.square() / 2, "k3": torch.exp(d) - d - 1}[x.get("kl_estimator") or "k3"]
    if x.get("kl_clamp") is not None:
        kl = torch.clamp(kl, -x["kl_clamp"], x["kl_clamp"])
    if x["kl_ratio"] == "token":
        kl = kl * torch.exp(lp - old)
    if x["kl_ratio"] == "sequence":
        kl = kl * torch.exp(((lp - old) * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1))
    return kl


def aggregate(losses: torch.Tensor, mask: torch.Tensor, x: dict[str, Any]) -> torch.Tensor:
    algorithm, rows = x["algorithm"], len(mask)
    losses = losses * mask
    if algorithm == "dr_grpo":
        return losses.sum() / (rows * x["max_length"])
    if algorithm == "luspo":
        return losses.sum(-1).mean()
    if algorithm in ("dapo", "cispo") and x["dapo_denominator"] == "trl":
        return losses.sum() / x["tokens_in_step"]
    if algorithm in ("dapo", "cispo", "bnpo-trl"):
        sizes = [rows]
        if algorithm == "bnpo-trl":
            sizes = x["micro_batches"]
        elif x["dapo_denominator"] == "group":
            sizes = [x["group_size"]] * (rows // x["group_size"])
        parts = zip(losses.split(sizes), mask.split(sizes), strict=True)
        return torch.stack([part.sum() / counts.sum().clamp(min=1) for part, counts in parts]).mean()
    return (losses.sum(-1) / mask.sum(-1).clamp(min=1)).mean()


def forward(lp: torch.Tensor, mask: torch.Tensor, x: dict[str, Any]) -> torch.Tensor:
    """The loss of log-probs (B, T)."""
    old = lp.detach() if x["old"] is None else _wide(x["old"], mask)
    losses = surrogate(lp, old, _wide(x["advantages"], mask), mask, x)
    if x.get("weights") is not None:
        losses = losses * _wide(x["weights"], mask)
    if x["beta"]:
        losses = losses + x["beta"] * divergence(lp, old, _wide(x["reference"], mask), mask, x)
    return aggregate(losses.expand(mask.shape), mask, x)


def policy_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    variable = _tensor(x["policy"]).requires_grad_()
    mask = _grid(x)
    lp = (
        variable if variable.ndim == 2 else torch.zeros(mask.shape, dtype=variable.dtype).masked_scatter(mask, variable)
    )
    loss = forward(lp, mask, x)
    loss.backward()
    return {"loss": loss.item(), "gradient": variable.grad.numpy()}


def policy_loss_in_parts(*, parts: list[int], **x: Any) -> dict[str, Any]:
    """Add up micro-batches: each is its rows' share of the step."""
    rows, mask = sum(parts), _tensor(x["mask"])
    variable = _tensor(x["policy"]).requires_grad_()
    total, end, groups = 0.0, 0, x.get("group_size") or rows
    for size in parts:
        start, end = end, end + size
        own = {k: v[start:end] if isinstance(v, np.ndarray) and len(v) == rows else v for k, v in x.items()}
        by_tokens = x["algorithm"] in ("dapo", "cispo")
        tokens = float(mask.sum()) if x["dapo_denominator"] != "trl" else x["tokens_in_step"]
        if by_tokens and x["dapo_denominator"] == "group":
            loss = 0.0
            for row in range(start, end):  # a prompt's rows may stand in two parts
                first = row // groups * groups
                one = {k: v[row : row + 1] if isinstance(v, np.ndarray) and len(v) == rows else v for k, v in x.items()}
                one |= {"dapo_denominator": "trl", "tokens_in_step": float(mask[first : first + groups].sum())}
                loss = loss + forward(variable[row : row + 1], mask[row : row + 1], one) / (rows // groups)
        else:
            if by_tokens:
                own |= {"dapo_denominator": "trl", "tokens_in_step": tokens}
            loss = forward(variable[start:end], mask[start:end], own) * (1.0 if by_tokens else size / rows)
        loss.backward()
        total += loss.item()
    return {"loss": total, "gradient": variable.grad.numpy()}


def loss_of_completions(**x: Any) -> dict[str, Any]:
    """Mask what was cut off."""
    lengths = np.where(x["ended"] | (not x["mask_truncated"]), x["lengths"], 0)
    rows = len(lengths)
    size = x.pop("micro_batch_rows")
    mask = np.arange(x["policy"].shape[1]) < lengths[:, None]
    x |= {"lengths": None, "mask": mask, "tokens_in_step": float(mask.sum()), "kl_ratio": "none", **DEFAULTS}
    return policy_loss(**x, micro_batches=[min(size, rows - start) for start in range(0, rows, size)])


def loss_from_logits(*, logits: Any, ids: Any, prompt_lengths: Any, lengths: Any, temperature: float, **x: Any) -> Any:
    """Score the completions and differentiate by the logits."""
    variable = _tensor(logits).requires_grad_()
    scores = torch.log_softmax(variable / temperature, dim=-1)
    scores = scores[:, :-1].gather(-1, _tensor(ids)[:, 1:, None].long())[..., 0]
    width = int(np.max(lengths))
    mask = torch.arange(width) < _tensor(lengths)[:, None]
    at = (_tensor(prompt_lengths)[:, None] - 1 + torch.arange(width)).clamp(max=scores.shape[1] - 1)
    lp = scores.gather(1, at)
    loss = forward(lp, mask, x)
    loss.backward()
    return {"loss": loss.item(), "gradient": variable.grad.numpy(), "logprobs": lp.detach().numpy()}


def rewarded_loss(**x: Any) -> dict[str, Any]:
    """RLOO with the KL in the reward."""
    mask, size = _tensor(x["mask"]), x["group_size"]
    kl = ((_tensor(x["old"]) - _tensor(x["reference"])) * mask).sum(-1)
    rewards = (_tensor(x["rewards"]).float() - x["beta"] * kl).view(-1, size)
    advantages = (rewards - (rewards.sum(1, keepdim=True) - rewards) / (size - 1)).view(-1)
    given = {"algorithm": "rloo", "beta": 0.0, "epsilon_low": None, "advantages": advantages.numpy()}
    return {**policy_loss(**{**x, **given}), "advantages": advantages.numpy()}


def correction_weights(old: torch.Tensor, mask: torch.Tensor, x: dict[str, Any]) -> torch.Tensor:
    if x["correction"] is None:
        return torch.ones(mask.shape)
    difference = old - _tensor(x["sampling"])
    if x["correction_level"] == "seq_sum":
        difference = (difference * mask).sum(-1, keepdim=True)
    r, low, high = torch.exp(difference), x["correction_low"] or 0.0, x["correction_high"]
    if x["correction"] == "tis":
        return torch.clamp(r, low, high)
    return torch.where((r >= low) & (r <= high), r, 0.0)


def loss_with_options(**x: Any) -> dict[str, Any]:
    """Corrections, the top-entropy mask, and the bonus."""
    mask = _tensor(x["mask"])
    lp, entropy = _tensor(x["policy"]).requires_grad_(), _tensor(x["entropy"]).requires_grad_()
    least = torch.quantile(entropy.detach()[mask], 1 - x["entropy_share"])
    top = mask & (entropy.detach() >= least)
    low, high = CLIPS[x["algorithm"]]
    x |= {"epsilon_low": low, "epsilon_high": high, "kl_ratio": "none", "dapo_denominator": "global"}
    weights = (correction_weights(_tensor(x["old"]), mask, x) * top).detach().expand(mask.shape)
    loss = forward(lp, mask, {**x, "weights": weights.numpy()})
    loss = loss - x["entropy_bonus"] * (entropy * top).sum() / top.sum()
    loss.backward()
    return {"loss": loss.item(), "gradient": lp.grad.numpy(), "entropy_gradient": entropy.grad.numpy()}


def loss_constants(**x: Any) -> dict[str, Any]:
    """Everything but the policy is a constant."""
    mask, lp = _tensor(x["mask"]), _tensor(x["policy"]).requires_grad_()
    old = lp.detach() if x["old"] is None else _tensor(x["old"])
    weights = correction_weights(old, mask, x).expand(mask.shape).numpy()
    clip = {"gspo": (3e-4, 4e-4), "dapo": (0.2, 0.28)}.get(x["algorithm"], (0.2, 0.2))
    own = dict(zip(("epsilon_low", "epsilon_high"), clip, strict=True))
    loss = forward(lp, mask, {**DEFAULTS, **x, **own, "dapo_denominator": "global", "weights": weights})
    loss.backward()
    zero = np.zeros(mask.shape, np.float32)
    others = dict.fromkeys(("old_gradient", "reference_gradient", "sampling_gradient"), zero)
    return {"loss": loss.item(), "gradient": lp.grad.numpy(), **others}


def keep_groups(*, rewards: Any, weights: Any, group_size: int, convention: str, accuracy: int) -> dict[str, Any]:
    """Keep a group whose rewards differ."""
    table = _tensor(rewards)
    scores = table[:, accuracy] if convention == "accuracy" else (table * _tensor(weights)).sum(-1)
    groups = scores.view(-1, group_size)
    return {"keep": (groups.amax(1) > groups.amin(1)).numpy()}


def overlong_penalty(*, lengths: Any, limit: int, buffer: int) -> dict[str, Any]:
    """A slope of length `buffer` to −1."""
    over = _tensor(lengths) - (limit - buffer)
    return {"penalty": (-torch.clamp(over / buffer, 0, 1)).numpy()}


OPS = {
    function.__name__: function
    for function in (
        policy_loss,
        policy_loss_in_parts,
        loss_of_completions,
        loss_from_logits,
        rewarded_loss,
        loss_with_options,
        loss_constants,
        keep_groups,
        overlong_penalty,
    )
}
ALGORITHMS = ("grpo", "dapo", "bnpo-trl", "dr_grpo", "gspo", "gspo-token", "rloo", "cispo", "sapo", "gmpo", "luspo")
CONVENTIONS = {
    "policy_loss": {"algorithm": ALGORITHMS, "clipped": (False, True), "kl_clamp": (None, 10.0)},
    "loss_of_completions": {"algorithm": ALGORITHMS},
    "loss_from_logits": {"algorithm": tuple(name for name in ALGORITHMS if name != "gspo-token")},  # GSPO by rows
}
