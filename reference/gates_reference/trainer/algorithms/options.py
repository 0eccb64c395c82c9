"""Settings that every policy-gradient algorithm has; an algorithm's own Settings add to them and choose the defaults.

Pydantic refuses unknown keys, wrong types and values out of range.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from gates_reference.trainer.algorithms.corrections import Correction, Level

Aggregation = Literal["row-mean", "row-sum", "constant", "width", "global", "group", "trl", "micro-batch"]
Scale = Literal["group", "batch", "none"]
Baseline = Literal["mean", "leave-one-out", "batch"]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1)]
CONFIG = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Settings:
    """Aggregation, KL, advantages, off-policy correction and entropy.

    Attributes:
        aggregation: how tokens are weighted, by name (`objective`).
        beta: weight of the KL to the reference policy; with 0 there is no reference pass.
        kl_estimator: k1, k2 or k3 (`ratio`), in the loss.
        kl_ratio: what the estimate is multiplied by: nothing, the token's ratio, or the completion's mean ratio.
        kl_in_reward: subtract beta times the summed k1 of old and reference from the reward; no KL in the loss.
        advantage: "group" (of the weighted sum of rewards), or "normalise-then-sum" (GDPO: each function by itself first).
        advantage_scale: the deviation to divide by: the group's, the batch's, or none.
        advantage_ddof: degrees of freedom of the deviation, 0 or 1.
        advantage_epsilon: the epsilon of `advantage_epsilon_mode`.
        advantage_epsilon_mode: std + epsilon ("add"), sqrt(var + epsilon) ("inside"), or 0 where std < epsilon ("threshold").
        advantage_baseline: the group's mean, the mean of the group's other completions ("leave-one-out"), or the mean of the whole
            batch ("batch"; with an advantage_scale of "batch" or "none").
        correction: off-policy weights (`corrections`), or None.
        correction_level: one weight per token, or one per completion.
        correction_low: lower bound of the weights, or None.
        correction_high: upper bound of the weights.
        entropy_share: the share of tokens, those of highest entropy, that train the policy; 1 means all.
        entropy_bonus: weight of the mean entropy, which is subtracted from the loss.
        mask_truncated_completions: leave completions without an end token out of the loss (TRL's option of this name). They keep
            their reward in the group's baseline and count as rows, and none of their tokens counts in any denominator.
    """

    aggregation: Aggregation = "row-mean"
    beta: NotNegative = 0.0
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    kl_ratio: Literal["none", "token", "sequence"] = "none"
    kl_in_reward: bool = False
    advantage: Literal["group", "normalise-then-sum"] = "group"
    advantage_scale: Scale = "group"
    advantage_ddof: Literal[0, 1] = 1
    advantage_epsilon: NotNegative = 1e-4
    advantage_epsilon_mode: Literal["add", "inside", "threshold"] = "add"
    advantage_baseline: Baseline = "mean"
    correction: Correction | None = None
    correction_level: Level = "token"
    correction_low: NotNegative | None = None
    correction_high: Positive = 2.0
    entropy_share: Share = 1.0
    entropy_bonus: NotNegative = 0.0
    mask_truncated_completions: bool = False

    def __post_init__(self) -> None:
        """Refuse values that contradict each other."""
        if self.kl_in_reward and (self.kl_estimator, self.kl_ratio) != ("k1", "none"):
            raise ValueError(
                f"kl_estimator is {self.kl_estimator!r} and kl_ratio {self.kl_ratio!r}, must be 'k1' and 'none' with "
                "kl_in_reward: what lowers a reward is the summed k1 of old and reference"
            )
        if self.advantage_baseline == "batch" and self.advantage_scale == "group":
            raise ValueError(
                "advantage_scale is 'group', must be 'batch' or 'none' with advantage_baseline 'batch': a mean and a deviation of "
                "different completions give no z-score"
            )
        if self.correction_low is not None and self.correction_low > self.correction_high:
            raise ValueError(
                f"correction_low is {self.correction_low}, must be at most correction_high = {self.correction_high}"
            )


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Clipped(Settings):
    """Settings of an algorithm that clips the ratio.

    Attributes:
        epsilon_low: with a negative advantage the ratio counts down to 1 - epsilon_low.
        epsilon_high: with a positive advantage the ratio counts up to 1 + epsilon_high.
        delta: upper bound of the ratio with a negative advantage, above 1 + epsilon_high; None means no bound.
    """

    epsilon_low: NotNegative = 0.2
    epsilon_high: NotNegative = 0.2
    delta: Positive | None = None

    def __post_init__(self) -> None:
        """Refuse a delta inside the clip range."""
        super().__post_init__()
        if self.delta is not None and self.delta <= 1 + self.epsilon_high:
            raise ValueError(f"delta is {self.delta}, must be > 1 + epsilon_high = {1 + self.epsilon_high}, or None")


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class KlInReward(Settings):
    """Settings of an algorithm whose KL is the summed k1 in the reward."""

    kl_in_reward: bool = True
    kl_estimator: Literal["k1", "k2", "k3"] = "k1"

    def __post_init__(self) -> None:
        """Refuse a KL in the loss."""
        if not self.kl_in_reward:
            raise ValueError("kl_in_reward is False, must be True: the KL of this algorithm is a part of the reward")
        super().__post_init__()
