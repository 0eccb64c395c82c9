"""The formulas in plain torch as a practitioner writes them, with autograd for gradients.

The rows torch@compiled use torch.compile, whose first call takes up to half a minute.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "gates" / "subjects" / "peers" / "shared"))
from peer_timed import Timed, only_output

COMPILED = bool(globals().get("SETTINGS", {}).get("compiled"))


def _maybe_compiled(function):
    """Return a function, compiled if configured, and an addition to the note."""
    import torch

    return (torch.compile(function), ", under torch.compile") if COMPILED else (function, "")


def group_advantages(rewards, group_size, *, eps, **_):
    """Mean and deviation of each group, repeated for its rows."""
    import torch

    def advantages(rewards):
        rows = rewards.view(-1, group_size)
        mean, std = (values.repeat_interleave(group_size, dim=0) for values in (rows.mean(dim=1), rows.std(dim=1)))
        return (rewards - mean) / (std + eps)

    names = {"advantages": advantages, "rewards": torch.from_numpy(rewards)}
    note = "mean and std per group, repeat_interleave, divide: as TRL wrote it before it knew unscored rewards"
    return Timed("advantages(rewards)", names, only_output("advantages"), note)


def token_kl(policy, reference, **_):
    """Schulman's k3 per token."""
    import torch

    def k3(policy, reference):
        d = reference - policy
        return torch.exp(d) - d - 1

    call, how = _maybe_compiled(k3)
    names = {"k3": call, "policy": torch.from_numpy(policy), "reference": torch.from_numpy(reference)}
    return Timed("k3(policy, reference)", names, only_output("kl"), f"torch.exp(d) - d - 1{how}")


def selective_log_softmax(logits, ids, *, entropy, **_):
    """log_softmax and gather; the entropy from the same log-probs."""
    import torch

    names = {"torch": torch, "logits": torch.from_numpy(logits), "ids": torch.from_numpy(ids)[:, None]}
    if not entropy:
        statement = "torch.log_softmax(logits, dim=-1).gather(-1, ids)"
        return Timed(statement, names, lambda result: {"logprobs": result[:, 0].numpy()})
    statement = "(lp := torch.log_softmax(logits, dim=-1)).gather(-1, ids), -(lp.exp() * lp).sum(-1)"
    return Timed(statement, names, lambda result: {"logprobs": result[0][:, 0].numpy(), "entropy": result[1].numpy()})


def policy_loss(policy, *, old, reference, advantages, mask, epsilon_low, epsilon_high, beta, **_):
    """GRPO's loss under autograd."""
    import torch

    leaf = torch.from_numpy(policy.copy()).requires_grad_()
    arrays = [mask.astype(policy.dtype), advantages[:, None], old, *([reference] if beta else [])]
    fixed = [torch.from_numpy(values) for values in arrays]

    def loss(policy, weights, gains, old, *reference):
        ratio = torch.exp(policy - old)
        clipped = torch.clamp(ratio, 1 - epsilon_low, 1 + epsilon_high)
        terms = -torch.min(ratio * gains, clipped * gains)
        if beta:
            d = reference[0] - policy
            terms = terms + beta * (torch.exp(d) - d - 1)
        return ((terms * weights).sum(-1) / weights.sum(-1).clamp(min=1.0)).mean()

    call, how = _maybe_compiled(loss)

    def loss_and_gradient():
        value = call(leaf, *fixed)
        return value.detach(), torch.autograd.grad(value, leaf)[0]

    return Timed(
        "loss_and_gradient()",
        {"loss_and_gradient": loss_and_gradient},
        lambda result: {"loss": float(result[0]), "gradient": result[1].numpy()},
        f"GRPO's expressions{how}, then torch.autograd.grad; tensors and a float mask made beforehand",
    )


TIMED = {f.__name__: f for f in (group_advantages, token_kl, selective_log_softmax, policy_loss)}
