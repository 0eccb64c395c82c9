"""DPO, hinge and IPO of whole sequences: prompts are scored too, and cancel where both completions have the same one."""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "preference_loss": {"loss": ("dpo", "hinge", "ipo"), "prompt": ("shared",)}
}


def preference_loss(
    *,
    policy: Any,
    reference: Any,
    mask: Any,
    loss: Any,
    beta: Any,
    label_smoothing: Any,
    lengths: Any,
    penalty: Any,
    margin: Any,
    nll: Any,
) -> Any:
    """Return the mean over pairs, and its gradient."""
    del lengths, penalty, margin, nll
    tokens = np.arange(policy.shape[1]) <= mask.shape[1] - 1 - mask[:, ::-1].argmax(1)[:, None]
    ref = np.zeros_like(policy) if reference is None else reference
    h = (policy * tokens).sum(1) - (ref * tokens).sum(1)
    h = h[0::2] - h[1::2]
    if loss == "dpo":
        s = label_smoothing
        value = np.logaddexp(0, -beta * h) * (1 - s) + np.logaddexp(0, beta * h) * s
        slope = -beta * ((1 - s) / (1 + np.exp(beta * h)) - s / (1 + np.exp(-beta * h)))
    elif loss == "hinge":
        value, slope = np.maximum(0, 1 - beta * h), -beta * (beta * h < 1)
    else:
        value, slope = (h - 1 / (2 * beta)) ** 2, 2 * (h - 1 / (2 * beta))
    rows = np.stack([slope, -slope], 1).reshape(-1, 1) / len(h)
    return {"loss": value.mean(), "gradient": (rows * tokens).astype(policy.dtype)}


OPS = {"preference_loss": preference_loss}
