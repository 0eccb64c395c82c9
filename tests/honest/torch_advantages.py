"""Advantages in torch as TRL and verl write them, in the dtype of the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

VERSIONS = {"torch": torch.__version__}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {}
torch.set_num_threads(1)


def group_advantages(
    *, rewards: Any, group_size: Any, scale: Any, ddof: Any, eps: Any, eps_mode: Any, baseline: Any
) -> dict[str, Any]:
    """TRL's way: means and deviations repeated to the length of the rewards; verl's leave-one-out."""
    rewards = torch.from_numpy(np.ascontiguousarray(rewards))
    groups = rewards.view(-1, group_size)
    mean_grouped = groups.mean(dim=1).repeat_interleave(group_size, dim=0)
    advantages = rewards - mean_grouped
    if baseline == "leave-one-out":
        advantages = rewards * group_size / (group_size - 1) - mean_grouped * group_size / (group_size - 1)
    if scale != "none":
        if scale == "group":
            std = groups.std(dim=1, correction=ddof).repeat_interleave(group_size, dim=0)
        else:
            std = rewards.std(correction=ddof).expand_as(rewards)
        if eps_mode == "add":
            advantages = advantages / (std + eps)
        elif eps_mode == "inside":
            advantages = advantages / torch.sqrt(std.square() + eps)
        else:
            advantages = torch.where(std < eps, 0.0, advantages / std)
    return {"advantages": advantages.numpy()}


def normalise_then_sum(
    *, rewards: Any, weights: Any, group_size: Any, group_ddof: Any, group_eps: Any, batch_ddof: Any, batch_eps: Any
) -> dict[str, Any]:
    """TRL's `multi_objective_aggregation="normalize_then_sum"`."""
    rewards, weights = (torch.from_numpy(np.ascontiguousarray(x)) for x in (rewards, weights))
    grouped = rewards.view(-1, group_size, rewards.shape[1])
    mean_k = torch.nanmean(grouped, dim=1, keepdim=True)
    std_k = torch.std(grouped, dim=1, correction=group_ddof, keepdim=True)
    reward_k = ((grouped - mean_k) / (std_k + group_eps)).view(-1, rewards.shape[1])
    total = (reward_k * weights.unsqueeze(0)).nansum(dim=1)
    advantages = (total - total.mean()) / (total.std(correction=batch_ddof) + batch_eps)
    return {"advantages": advantages.numpy()}


def gae(
    *,
    rewards: Any,
    values: Any,
    gamma: Any,
    lam: Any,
    bootstrap: Any = None,
    terminal: Any = None,
    mask: Any = None,
    lengths: Any = None,
) -> dict[str, Any]:
    """Verl's `compute_gae_advantage_return`, without its whitening, with bootstrap values and flags."""
    shape, dtype = rewards.shape, torch.from_numpy(np.zeros(1, rewards.dtype)).dtype
    if rewards.ndim == 1:
        place = keep = np.arange(max(lengths)) < np.asarray(lengths)[:, None]
    else:
        place = np.ones(shape, bool)
        keep = place if mask is None else mask
        if lengths is not None:
            keep = np.arange(shape[1]) < np.asarray(lengths)[:, None]

    def table(x: Any) -> Any:
        wide = torch.zeros(keep.shape, dtype=dtype)
        wide[torch.from_numpy(place)] = torch.from_numpy(np.ascontiguousarray(x).reshape(-1)).to(dtype)
        return wide

    token_level_rewards, values = table(rewards), table(values)
    done = table(np.zeros(shape) if terminal is None else terminal)
    response_mask = torch.from_numpy(np.ascontiguousarray(keep)).to(dtype)
    nextvalues = torch.zeros(len(keep), dtype=dtype)
    if bootstrap is not None:
        nextvalues = torch.from_numpy(np.ascontiguousarray(bootstrap))
    lastgaelam = torch.zeros(len(keep), dtype=dtype)
    reversed_ = []
    for t in reversed(range(values.shape[1])):
        live = 1.0 - done[:, t]
        delta = token_level_rewards[:, t] + gamma * nextvalues * live - values[:, t]
        lastgaelam_ = delta + gamma * lam * lastgaelam * live
        nextvalues = values[:, t] * response_mask[:, t] + (1 - response_mask[:, t]) * nextvalues
        lastgaelam = lastgaelam_ * response_mask[:, t] + (1 - response_mask[:, t]) * lastgaelam
        reversed_.append(lastgaelam)
    advantages = torch.stack(reversed_[::-1], dim=1) * response_mask
    return {"advantages": advantages.numpy()[place].reshape(shape)}


OPS = {"group_advantages": group_advantages, "normalise_then_sum": normalise_then_sum, "gae": gae}
