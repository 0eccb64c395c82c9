"""The formulas in plain MLX under mx.compile, on the CPU."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "gates" / "subjects" / "peers" / "shared"))
import numpy as np
from peer_timed import Timed


def _timed(function, arrays, answer, note):
    """Return the call of a compiled function on arrays, evaluated."""
    import mlx.core as mx

    held = [mx.array(values) for values in arrays]
    compiled = mx.compile(function)
    mx.eval(held)

    def call():
        result = compiled(*held)
        mx.eval(result)
        return result

    return Timed("call()", {"call": call}, answer, f"{note}, under mx.compile, evaluated")


def group_advantages(rewards, group_size, *, ddof, eps, **_):
    """Mean and deviation along an axis."""
    import mlx.core as mx

    def advantages(rewards):
        rows = rewards.reshape(-1, group_size)
        spread = mx.std(rows, axis=1, ddof=ddof, keepdims=True)
        return ((rows - rows.mean(axis=1, keepdims=True)) / (spread + eps)).reshape(-1)

    return _timed(advantages, [rewards], lambda result: {"advantages": np.array(result)}, "mean and std along an axis")


def token_kl(policy, reference, **_):
    """Schulman's k3 per token."""
    import mlx.core as mx

    def k3(policy, reference):
        d = reference - policy
        return mx.exp(d) - d - 1

    return _timed(k3, [policy, reference], lambda result: {"kl": np.array(result)}, "exp(d) − d − 1")


def selective_log_softmax(logits, ids, *, entropy, **_):
    """Logsumexp and gather; the entropy from the log-probs."""
    import mlx.core as mx

    def scores(logits, ids):
        total = mx.logsumexp(logits, axis=-1, keepdims=True)
        logprobs = (mx.take_along_axis(logits, ids, axis=-1) - total)[:, 0]
        if not entropy:
            return [logprobs]
        every = logits - total
        return [logprobs, -(mx.exp(every) * every).sum(axis=-1)]

    def answer(result):
        return {name: np.array(value) for name, value in zip(("logprobs", "entropy"), result, strict=False)}

    return _timed(scores, [logits, ids[:, None]], answer, "logsumexp and take_along_axis")


def policy_loss(policy, *, old, reference, advantages, mask, epsilon_low, epsilon_high, beta, **_):
    """GRPO's loss with MLX's gradient."""
    import mlx.core as mx

    def loss(policy, old, advantages, mask, *reference):
        ratio = mx.exp(policy - old)
        clipped = mx.clip(ratio, 1 - epsilon_low, 1 + epsilon_high)
        terms = -mx.minimum(ratio * advantages, clipped * advantages)
        if beta:
            d = reference[0] - policy
            terms = terms + beta * (mx.exp(d) - d - 1)
        return ((terms * mask).sum(-1) / mx.maximum(mask.sum(-1), 1.0)).mean()

    arrays = [policy, old, advantages[:, None], mask.astype(np.float32), *([reference] if beta else [])]

    def answer(result):
        return {"loss": result[0].item(), "gradient": np.array(result[1])}

    return _timed(mx.value_and_grad(loss), arrays, answer, "GRPO's expressions in mx.value_and_grad")


TIMED = {f.__name__: f for f in (group_advantages, token_kl, selective_log_softmax, policy_loss)}
