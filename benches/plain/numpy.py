"""The formulas in plain NumPy, vectorised as a practitioner writes them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "gates" / "subjects" / "peers" / "shared"))
import numpy as np
from peer_timed import Timed, only_output


def group_advantages(rewards, group_size, *, ddof, eps, **_):
    """Mean and deviation along an axis."""

    def advantages(rewards):
        rows = rewards.reshape(-1, group_size)
        spread = rows.std(axis=1, ddof=ddof, keepdims=True)
        return ((rows - rows.mean(axis=1, keepdims=True)) / (spread + eps)).reshape(-1)

    note = f"reshape, mean and std (ddof {ddof}) along an axis, the difference over std + {eps:g}"
    return Timed("advantages(rewards)", {"advantages": advantages, "rewards": rewards}, only_output("advantages"), note)


def token_kl(policy, reference, **_):
    """Schulman's k3 per token."""
    names = {"np": np, "policy": policy, "reference": reference}
    return Timed("np.exp(d := reference - policy) - d - 1", names, only_output("kl"))


def selective_log_softmax(logits, ids, *, entropy, **_):
    """Shift by the largest logit, exponentiate, sum."""

    def scores(logits, ids):
        shifted = logits - logits.max(axis=-1, keepdims=True)
        weights = np.exp(shifted)
        total = weights.sum(axis=-1)
        logprobs = np.take_along_axis(shifted, ids[:, None], axis=-1)[:, 0] - np.log(total)
        if not entropy:
            return {"logprobs": logprobs}
        return {"logprobs": logprobs, "entropy": np.log(total) - (weights * shifted).sum(axis=-1) / total}

    names = {"scores": scores, "logits": logits, "ids": ids}
    return Timed("scores(logits, ids)", names, lambda result: result, "max, exp and sum along the vocabulary")


def policy_loss(policy, *, old, reference, advantages, mask, epsilon_low, epsilon_high, beta, **_):
    """GRPO's loss with its gradient written out."""
    weights = mask.astype(policy.dtype)
    share = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1) / len(policy)
    gains = advantages[:, None]

    def loss_and_gradient(policy):
        ratio = np.exp(policy - old)
        plain, clipped = ratio * gains, np.clip(ratio, 1 - epsilon_low, 1 + epsilon_high) * gains
        terms, slope = -np.minimum(plain, clipped), np.where(plain <= clipped, -plain, 0)
        if beta:
            d = reference - policy
            grown = np.exp(d)
            terms = terms + np.float32(beta) * (grown - d - 1)
            slope = slope + np.float32(beta) * (1 - grown)
        return (terms * share).sum(), slope * share

    return Timed(
        "loss_and_gradient(policy)",
        {"loss_and_gradient": loss_and_gradient, "policy": policy},
        lambda result: {"loss": float(result[0]), "gradient": result[1]},
        "GRPO's terms and their derivative as array expressions; each token's share of the mean is made beforehand",
    )


TIMED = {f.__name__: f for f in (group_advantages, token_kl, selective_log_softmax, policy_loss)}
