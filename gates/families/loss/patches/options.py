"""Mutations of the options of the trainer's losses; loaded in workers only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np

from gates.families.patching import Fn, mutation
from gates_reference.trainer.algorithms import dapo


@mutation
def lowered_denominator(original: Fn, aggregation: str, part: Any, whole: Any, counts: Any) -> Any:
    """Count only the tokens that reach the step's threshold."""
    if whole.entropy_threshold in {None, float("-inf")}:
        return original(aggregation, part, whole, counts)
    kept = (part.mask & (part.entropy >= whole.entropy_threshold)).sum(axis=1, keepdims=True)
    return original(aggregation, part, replace(whole, tokens=whole.entropy_tokens), kept.astype(mx.float32))


@mutation
def lowest(original: Fn, part: Any, least: float) -> Any:
    """Choose the tokens below the threshold."""
    return part.mask & ~original(part, least) if np.isfinite(least) else original(part, least)


@mutation
def quantile_of_part(original: Fn, part: Any, whole: Any, share: Any) -> Any:
    """Drop the threshold of the whole step."""
    return original(part, replace(whole, entropy_threshold=None, entropy_tokens=None, micro_batches=1), share)


@mutation
def wrong_end(original: Fn, entropies: Any, mask: Any, share: Any) -> Any:
    """Take the quantile from the other end."""
    return original(entropies, mask, max(1.0 - share, 1e-6))


@mutation
def bonus_of_part(original: Fn, part: Any, tokens: Any, _: Any) -> Any:
    """Divide by the micro-batch's tokens."""
    return original(part, tokens, int(tokens.sum()))


@mutation
def no_kl(original: Fn, *arguments: Any, **rest: Any) -> Any:
    """Leave the KL out."""
    return original(*arguments, **rest) * 0.0


@mutation
def one_sided(original: Fn, raw: Any, correction: Any, _: Any, c_max: Any) -> Any:
    """Apply the upper bound only."""
    return original(raw, correction, 0.0, c_max)


@mutation
def clamped(original: Fn, raw: Any, _: Any, c_min: Any, c_max: Any) -> Any:
    """Clamp weights that MIS drops."""
    return original(raw, "tis", c_min, c_max)


@mutation
def keep_all(original: Fn, values: Any, group_size: Any) -> Any:
    """Keep equal groups too."""
    return original(values, group_size) | True


@mutation
def keep_by_the_shaped(original: Fn, self: Any, rewards: Any) -> Any:
    """Compare groups by the optimised reward: the weighted sum of all rewards with the length penalty."""
    s = self.settings
    if s.dynamic_sampling in {None, "off"}:
        return original(self, rewards)
    shaped = rewards.total()
    if s.overlong_limit is not None:
        shaped = shaped + s.overlong_weight * dapo.overlong(rewards.lengths, s.overlong_limit, s.overlong_buffer)
    return dapo.differs(shaped, rewards.group_size)


@mutation
def nan_is_zero(original: Fn, values: Any, group_size: Any) -> Any:
    """Count unscored completions as 0."""
    return original(np.nan_to_num(values), group_size)


@mutation
def without_buffer(original: Fn, lengths: Any, limit: Any, _: Any) -> Any:
    """Let the penalty start at the limit."""
    return np.where(np.asarray(lengths) >= limit, -1.0, 0.0) + 0.0 * original(lengths, limit, 1)


@mutation
def padding_counts(original: Fn, entropies: Any, mask: Any, share: float) -> Any:
    """Take the quantile over all slots, but select tokens only."""
    least = original(entropies, np.ones_like(mask), share).least
    return original(entropies, mask, share)._replace(least=least)


@mutation
def bonus_of_every_token(original: Fn, part: Any, _: Any, step_tokens: Any) -> Any:
    """Use the completion mask instead of the selected tokens."""
    return original(part, part.mask, step_tokens)
