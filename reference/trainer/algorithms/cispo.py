r"""CISPO: clipped importance-sampling weights (MiniMax 2025, "MiniMax-M1", arXiv 2506.13585, eqs. 4 and 5).

    loss = 1/(sum_i n_i) sum_i sum_t -stop(min(r_t, c)) A policy_t

The truncated ratio is a constant, so every token keeps a gradient. The cap c is 1 + epsilon_high ("relative", MiniMax-M1) or
epsilon_high ("absolute", TRL; with its default of 0.2 even r = 1 is above the cap). Aggregated like DAPO.
"""

from typing import Literal

import mlx.core as mx
from pydantic.dataclasses import dataclass

from reference.trainer import double
from reference.trainer.algorithms import objective, options
from reference.trainer.algorithms.aggregation import Aggregation
from reference.trainer.algorithms.options import Positive


@dataclass(frozen=True, kw_only=True, config=options.CONFIG)
class Settings(options.Settings):
    """The common settings, with a token mean, and the cap.

    Attributes:
        epsilon_high: gives the cap together with `bound`.
        bound: "relative", c = 1 + epsilon_high, or "absolute", c = epsilon_high.
    """

    aggregation: Aggregation = "global"
    epsilon_high: Positive = 0.28
    bound: Literal["relative", "absolute"] = "relative"


class Cispo(objective.PolicyGradient):
    """REINFORCE per token, weighted by the truncated ratio."""

    name = "cispo"
    settings: Settings

    @property
    def clip_widths(self) -> tuple[float, float]:
        """Return 1 below, for no ratio is negative, and the cap above; a cap below 1 counts as 0 above."""
        s = self.settings
        return 1.0, s.epsilon_high if s.bound == "relative" else max(s.epsilon_high - 1.0, 0.0)

    def surrogate(self, tokens: objective.Tokens) -> mx.array:
        """Return the loss of each token (B, T)."""
        s = self.settings
        cap = 1.0 + s.epsilon_high if s.bound == "relative" else s.epsilon_high
        weight = mx.minimum(double.exp(*tokens.log_ratio), cap)
        return -mx.stop_gradient(weight) * tokens.weighted_advantages * tokens.policy
