r"""PPO with a dual clip (Schulman et al. 2017, arXiv 1707.06347, eq. 7; Ye et al. 2020, arXiv 1912.09729, eq. 5).

    loss = 1/(sum_i n_i) sum_i sum_t -min(min(r, delta) A, clip(r, 1 - eps_low, 1 + eps_high) A)

The dual clip bounds the loss of a token with A < 0 by delta |A|. There is no critic: advantages come from rewards, as in GRPO.
"""

from pydantic.dataclasses import dataclass

from gates_reference.trainer.algorithms import grpo, options
from gates_reference.trainer.algorithms.options import Positive


@dataclass(frozen=True, kw_only=True, config=options.CONFIG)
class Settings(options.Clipped):
    """The clip's settings, with a token mean and the dual clip."""

    aggregation: options.Aggregation = "global"
    delta: Positive | None = 3.0


class Ppo(grpo.Grpo):
    """GRPO's surrogate under a token mean."""

    name = "ppo"
