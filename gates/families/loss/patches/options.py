"""Functions that apply mutations; loaded in workers only. Each takes the original function and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np

from reference.trainer.algorithms import dapo

Fn = Callable[..., Any]


def lowered_denominator(original: Fn) -> Fn:
    """Count only the tokens that reach the step's threshold."""

    def mistaken(aggregation: str, part: Any, whole: Any, counts: Any) -> Any:
        if whole.entropy_threshold in {None, float("-inf")}:
            return original(aggregation, part, whole, counts)
        kept = (part.mask & (part.entropy >= whole.entropy_threshold)).sum(axis=1, keepdims=True)
        return original(aggregation, part, replace(whole, tokens=whole.entropy_tokens), kept.astype(mx.float32))

    return mistaken


def lowest(original: Fn) -> Fn:
    """Choose the tokens below the threshold."""

    def mistaken(part: Any, least: float) -> Any:
        return part.mask & ~original(part, least) if np.isfinite(least) else original(part, least)

    return mistaken


def quantile_of_part(original: Fn) -> Fn:
    """Forget what is known of the step."""
    return lambda part, whole, share: original(
        part, replace(whole, entropy_threshold=None, entropy_tokens=None, micro_batches=1), share
    )


def wrong_end(original: Fn) -> Fn:
    """Take the quantile from the other end."""
    return lambda entropies, mask, share: original(entropies, mask, max(1.0 - share, 1e-6))


def bonus_of_part(original: Fn) -> Fn:
    """Divide by the part's tokens."""
    return lambda part, tokens, _: original(part, tokens, int(tokens.sum()))


def no_kl(original: Fn) -> Fn:
    """Leave the KL out."""
    return lambda *arguments, **rest: original(*arguments, **rest) * 0.0


def one_sided(original: Fn) -> Fn:
    """Apply the upper bound only."""
    return lambda raw, correction, _, c_max: original(raw, correction, 0.0, c_max)


def clamped(original: Fn) -> Fn:
    """Clamp where MIS drops."""
    return lambda raw, _, c_min, c_max: original(raw, "tis", c_min, c_max)


def keep_all(original: Fn) -> Fn:
    """Keep equal groups too."""
    return lambda values, group_size: original(values, group_size) | True


def keep_by_the_shaped(original: Fn) -> Fn:
    """Judge groups by what is optimised: the weighted sum of all rewards, with the penalty of the lengths."""

    def mistaken(self: Any, rewards: Any) -> Any:
        s = self.settings
        if s.dynamic_sampling in {None, "off"}:
            return original(self, rewards)
        shaped = rewards.total()
        if s.overlong_limit is not None:
            shaped = shaped + s.overlong_weight * dapo.overlong(rewards.lengths, s.overlong_limit, s.overlong_buffer)
        return dapo.differs(shaped, rewards.group_size)

    return mistaken


def nan_is_zero(original: Fn) -> Fn:
    """Count what was not scored as 0."""
    return lambda values, group_size: original(np.nan_to_num(values), group_size)


def without_buffer(original: Fn) -> Fn:
    """Let the penalty start at the limit."""
    return lambda lengths, limit, _: (
        np.where(np.asarray(lengths) >= limit, -1.0, 0.0) + 0.0 * original(lengths, limit, 1)
    )


def padding_counts(original: Fn) -> Fn:
    """Take the quantile over every slot, and count only tokens."""

    def mistaken(entropies: Any, mask: Any, share: float) -> Any:
        least = original(entropies, np.ones_like(mask), share).least
        return original(entropies, mask, share)._replace(least=least)

    return mistaken


def bonus_of_every_token(original: Fn) -> Fn:
    """Take the completion mask for the chosen tokens."""
    return lambda part, _, step_tokens: original(part, part.mask, step_tokens)
