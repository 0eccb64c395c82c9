r"""CISPO: clipped importance-sampling weights (MiniMax 2025, "MiniMax-M1", arXiv 2506.13585, eqs. 4 and 5).

    loss = 1/(sum_i n_i) sum_i sum_t -stop(clip(r_t, 1 - epsilon_low, c)) A policy_t

The clipped ratio is a constant, so every token keeps a gradient. The cap c is 1 + epsilon_high ("relative", MiniMax-M1) or
epsilon_high ("absolute", TRL; with its default of 0.2 even r = 1 is above the cap). Without epsilon_low, as in MiniMax-M1's runs,
there is no lower bound. Aggregated like DAPO.
"""

from typing import Literal

import mlx.core as mx
from pydantic.dataclasses import dataclass

from gates_reference.trainer import double
from gates_reference.trainer.algorithms import objective, options
from gates_reference.trainer.algorithms.options import NotNegative, Positive


@dataclass(frozen=True, kw_only=True, config=options.CONFIG)
class Settings(options.Settings):
    """The common settings, with a token mean, and the bounds of the ratio.

    Attributes:
        epsilon_low: gives the lower bound 1 - epsilon_low; None for no lower bound.
        epsilon_high: gives the cap together with `bound`.
        bound: "relative", c = 1 + epsilon_high, or "absolute", c = epsilon_high.
    """

    aggregation: options.Aggregation = "global"
    epsilon_low: NotNegative | None = None
    epsilon_high: Positive = 0.28
    bound: Literal["relative", "absolute"] = "relative"

    def __post_init__(self) -> None:
        """Refuse a lower bound above the cap."""
        super().__post_init__()
        if self.floor > self.cap:
            raise ValueError(
                f"epsilon_low is {self.epsilon_low}, must be at least 1 - epsilon_high = {1 - self.epsilon_high} with bound "
                "'absolute', or None: the lower bound is above the cap"
            )

    @property
    def floor(self) -> float:
        """The smallest weight of a token."""
        return 0.0 if self.epsilon_low is None else 1.0 - self.epsilon_low

    @property
    def cap(self) -> float:
        """The largest weight of a token."""
        return 1.0 + self.epsilon_high if self.bound == "relative" else self.epsilon_high


class Cispo(objective.PolicyGradient):
    """REINFORCE per token, weighted by the clipped ratio."""

    name = "cispo"
    settings: Settings

    @property
    def clip_widths(self) -> tuple[float, float]:
        """The distances of floor and cap from 1; a cap below 1 counts as 0 above."""
        s = self.settings
        return min(1.0 - s.floor, 1.0), s.epsilon_high if s.bound == "relative" else max(s.epsilon_high - 1.0, 0.0)

    def surrogate(self, tokens: objective.Tokens) -> mx.array:
        """Return the loss of each token (B, T)."""
        weight = mx.clip(double.exp(*tokens.log_ratio), self.settings.floor, self.settings.cap)
        return -mx.stop_gradient(weight) * tokens.weighted_advantages * tokens.policy
