r"""DAPO: clip-higher, dynamic sampling, token means, over-long penalty (Yu et al. 2025, arXiv 2503.14476).

    loss = 1/(sum_i n_i) sum_i sum_t -min(r A, clip(r, 1 - eps_low, 1 + eps_high) A),  eps_low 0.2, eps_high 0.28, no KL

The denominator is chosen by name: "global" (all tokens of the step; verl), "group" (eq. 8: per prompt, then the mean over prompts)
or "trl" (tokens of the generation batch times the step's share). Dynamic sampling (eq. 11) keeps the prompts whose completions are
neither all right nor all wrong. The over-long penalty (eq. 13) is 0 up to L_max - L_c tokens and falls linearly to -1 at L_max.
"""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass

from gates_reference.trainer.algorithms import advantages, grpo, options
from gates_reference.trainer.algorithms.options import NotNegative
from gates_reference.trainer.algorithms.protocol import Rewards

Tokens = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, kw_only=True, config=options.CONFIG)
class Settings(options.Clipped):
    """GRPO's settings, dynamic sampling and the over-long penalty.

    Attributes:
        dynamic_sampling: keep only groups in which the "accuracy" reward (before penalties) or the "total" reward differs, or
            keep every group ("off", or None, which TOML has no word for).
        overlong_limit: L_max, in tokens; None for no penalty.
        overlong_buffer: L_c, in tokens, at most L_max.
        overlong_weight: the factor of the penalty in the reward.
    """

    aggregation: options.Aggregation = "global"
    epsilon_high: NotNegative = 0.28
    dynamic_sampling: Literal["accuracy", "total", "off"] | None = "total"
    overlong_limit: Tokens | None = None
    overlong_buffer: Tokens = 1
    overlong_weight: NotNegative = 1.0

    def __post_init__(self) -> None:
        """Refuse a buffer that is longer than the limit."""
        super().__post_init__()
        if self.overlong_limit is not None and self.overlong_buffer > self.overlong_limit:
            raise ValueError(
                f"overlong_buffer is {self.overlong_buffer}, must be at most overlong_limit = {self.overlong_limit}"
            )


class Dapo(grpo.Grpo):
    """GRPO's surrogate with a larger upper bound, under a token mean."""

    name = "dapo"
    settings: Settings

    def advantages(self, rewards: Rewards, *, old_kl: NDArray[np.float64] | None = None) -> NDArray[np.float32]:
        """Return the z-scores per group of the rewards plus the over-long penalty."""
        s = self.settings
        if s.overlong_limit is None:
            return super().advantages(rewards, old_kl=old_kl)
        if s.advantage != "group":
            raise ValueError("the over-long penalty belongs to the total reward; use advantage 'group', or no limit")
        totals = rewards.total() + s.overlong_weight * overlong(rewards.lengths, s.overlong_limit, s.overlong_buffer)
        return advantages.grouped(advantages.penalised(totals, s, old_kl), rewards.group_size, s)

    def keep(self, rewards: Rewards) -> NDArray[np.bool_]:
        """Keep the groups (P,) whose rewards are not all equal: the others have no gradient.

        Raises:
            ValueError: dynamic_sampling is "accuracy" and no reward function is the accuracy.
        """
        if self.settings.dynamic_sampling in {None, "off"}:
            return super().keep(rewards)
        if self.settings.dynamic_sampling == "accuracy":
            if rewards.accuracy is None:
                raise ValueError(
                    "dynamic_sampling is 'accuracy' and Rewards.accuracy is None; name one, or use 'total'"
                )
            return differs(rewards.values[:, rewards.accuracy], rewards.group_size)
        return differs(rewards.total(), rewards.group_size)


def overlong(lengths: NDArray[np.int64], limit: int, buffer: int) -> NDArray[np.float64]:
    """Return the penalty (R,): 0 if n <= L_max - L_c, (L_max - L_c - n) / L_c up to L_max, else -1."""
    start = limit - buffer
    n = np.asarray(lengths, np.float64)
    return np.where(n <= start, 0.0, np.where(n <= limit, (start - n) / buffer, -1.0))


def differs(values: NDArray[np.float64], group_size: int) -> NDArray[np.bool_]:
    """Return for each group (P,) whether its largest scored value exceeds its smallest; NaN means "not scored"."""
    groups = values.reshape(-1, group_size)
    return np.asarray(np.fmax.reduce(groups, axis=1) > np.fmin.reduce(groups, axis=1))
