"""mlx-lm-lora's GRPO with an importance ratio, as the paper has it."""

import mlx.core as mx
import mlx_lm_lora_base as base


def objective(logps, ref_logps, mask, advantages, beta, epsilon, epsilon_high, max_tokens, level, loss_type):
    logps = mx.where(mask, logps.astype(mx.float32), 0)
    ref_logps = mx.where(mask, mx.stop_gradient(ref_logps.astype(mx.float32)), 0)
    ratio = mx.exp(logps - ref_logps)
    clipped = mx.clip(ratio, 1 - epsilon, 1 + epsilon_high)
    advantage = mx.stop_gradient(advantages)[:, None]
    delta = ref_logps - logps
    kl = mx.exp(delta) - delta - 1
    loss = -mx.minimum(ratio * advantage, clipped * advantage) + beta * kl
    counts = mask.sum(axis=1)
    rows = mx.where(mask, loss, 0).sum(axis=1) / mx.maximum(counts, 1)
    low, high = (ratio < 1 - epsilon) & (advantage < 0) & mask, (ratio > 1 + epsilon_high) & (advantage > 0) & mask
    metrics = {
        "kl": mx.where(mask, kl, 0).sum() / counts.sum(),
        "kl_clip_ratio": mx.array(0.0),
        "clip_ratio_low": low.sum() / counts.sum(),
        "clip_ratio_high": high.sum() / counts.sum(),
        "clip_ratio_total": (low | high).sum() / counts.sum(),
    }
    return rows.mean(), counts.sum(), metrics


if __name__ == "__main__":
    base.main("grpo", patches={"_grpo_objective": objective})
