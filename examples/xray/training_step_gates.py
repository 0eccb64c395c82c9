"""A plain MLX loop as a subject: `gates check trainer.step` compares two of its updates with the settings that it says.

gates check trainer.step --subject examples/xray/training_step_gates.py
"""

import json

import mlx.core as mx
import mlx.optimizers as optim
import mlx_lm
from mlx import nn

SETTINGS = {
    "algorithm": "grpo",
    "epsilon_low": 0.2,
    "epsilon_high": 0.2,
    "beta": 0.0,
    "learning_rate": 1e-4,
    "scale": "group",
    "ddof": 0,
    "eps": 1e-4,
    "eps_mode": "add",
    "baseline": "mean",
}
CONVENTIONS = {"training_step": {"trainer": ["grpo"]}}


def log_probs(model, ids):
    """Return the log-probs of all tokens but the first."""
    scores = nn.log_softmax(model(ids[:, :-1]).astype(mx.float32))
    return mx.take_along_axis(scores, ids[:, 1:, None], axis=-1)[..., 0]


def loss(model, ids, mask, advantages, old):
    """Return the mean over rows of the mean of their tokens."""
    ratio = mx.exp(log_probs(model, ids) - old)
    clipped = mx.clip(ratio, 1 - SETTINGS["epsilon_low"], 1 + SETTINGS["epsilon_high"])
    tokens = -mx.minimum(ratio * advantages[:, None], clipped * advantages[:, None])
    return ((tokens * mask).sum(1) / mask.sum(1)).mean()


def training_step(*, model, settings, prompts, completions, rewards, group_size, updates, **_):
    """Train on these rows; the recorder of Gates sees the updates."""
    if set(settings) - {"learning_rate"}:
        raise NotImplementedError("this loop has a learning rate and no other option")
    rate = settings.get("learning_rate", SETTINGS["learning_rate"])
    policy = mlx_lm.load(model["path"])[0]
    rows = [[*prompts[k // group_size], *completion] for k, completion in enumerate(completions)]
    width = max(map(len, rows))
    ids = mx.array([row + [0] * (width - len(row)) for row in rows])
    begins = mx.array([[len(prompts[k // group_size])] for k in range(len(rows))])
    at = mx.arange(1, width)[None]
    mask = (at >= begins) & (at < mx.array([[len(row)] for row in rows]))
    groups = mx.array(rewards).reshape(-1, group_size)
    advantages = ((groups - groups.mean(1, keepdims=True)) / (mx.sqrt(groups.var(1, keepdims=True)) + 1e-4)).flatten()
    old = log_probs(policy, ids)
    optimizer = optim.Adam(rate)
    for _ in range(updates):
        _, gradients = nn.value_and_grad(policy, loss)(policy, ids, mask, advantages, old)
        optimizer.update(policy, gradients)
        mx.eval(policy.parameters())
    return {"settings": json.dumps({**SETTINGS, "learning_rate": rate}), "metrics": "{}"}


OPS = {"training_step": training_step}
