"""The formulas in plain torch, as a practitioner writes them: whole tensors, autograd for gradients."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "gates" / "subjects" / "peers" / "shared"))
from peer_timed import Timed, only_output


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

    names = {"torch": torch, "policy": torch.from_numpy(policy), "reference": torch.from_numpy(reference)}
    return Timed("torch.exp(d := reference - policy) - d - 1", names, only_output("kl"))


def selective_log_softmax(logits, ids, *, entropy, **_):
    """log_softmax and gather; the entropy from the same log-probs."""
    import torch

    names = {"torch": torch, "logits": torch.from_numpy(logits), "ids": torch.from_numpy(ids)[:, None]}
    if not entropy:
        statement = "torch.log_softmax(logits, dim=-1).gather(-1, ids)"
        return Timed(statement, names, lambda found: {"logprobs": found[:, 0].numpy()})
    statement = "(lp := torch.log_softmax(logits, dim=-1)).gather(-1, ids), -(lp.exp() * lp).sum(-1)"
    return Timed(statement, names, lambda found: {"logprobs": found[0][:, 0].numpy(), "entropy": found[1].numpy()})


def policy_loss(policy, *, old, reference, advantages, mask, epsilon_low, epsilon_high, beta, **_):
    """GRPO's loss under autograd."""
    import torch

    leaf = torch.from_numpy(policy.copy()).requires_grad_()
    given = {"old": old, "reference": reference, "gains": advantages[:, None]}
    fixed = {name: None if value is None else torch.from_numpy(value) for name, value in given.items()}
    weights = torch.from_numpy(mask).float()

    def loss_and_gradient():
        ratio = torch.exp(leaf - fixed["old"])
        clipped = torch.clamp(ratio, 1 - epsilon_low, 1 + epsilon_high)
        terms = -torch.min(ratio * fixed["gains"], clipped * fixed["gains"])
        if beta:
            d = fixed["reference"] - leaf
            terms = terms + beta * (torch.exp(d) - d - 1)
        loss = ((terms * weights).sum(-1) / weights.sum(-1).clamp(min=1.0)).mean()
        return loss.detach(), torch.autograd.grad(loss, leaf)[0]

    return Timed(
        "loss_and_gradient()",
        {"loss_and_gradient": loss_and_gradient},
        lambda found: {"loss": float(found[0]), "gradient": found[1].numpy()},
        "GRPO's expressions under autograd; tensors and a float mask made beforehand",
    )


TIMED = {f.__name__: f for f in (group_advantages, token_kl, selective_log_softmax, policy_loss)}
