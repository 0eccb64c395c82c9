"""Warn once if the rewards of many steps in a row leave nothing to learn: they are equal within every group."""

from collections.abc import Mapping
from typing import Final

STEPS: Final = 10
"""So many consecutive steps without a signal are no coincidence."""


class Signal:
    """Count the latest steps without a signal."""

    def __init__(self) -> None:
        self._rewards: list[float] = []
        self._warned = False

    def warning(self, numbers: Mapping[str, float]) -> str | None:
        """Take the numbers of a step; return the warning after `STEPS` steps without a signal, once."""
        if self._warned:
            return None
        if numbers.get("signal_share") != 0.0:
            self._rewards.clear()
            return None
        self._rewards.append(numbers.get("reward_mean", float("nan")))
        if len(self._rewards) < STEPS:
            return None
        self._warned = True
        return (
            f"warning: in {STEPS} steps no group had two different rewards, so that nothing was learned from them. "
            f"{self._cause(numbers)}"
        )

    def _cause(self, numbers: Mapping[str, float]) -> str:
        """Return the most likely cause and what to do, by the numbers of the last step."""
        if numbers.get("groups_kept") == 0:
            return (
                "Dynamic sampling dropped every group: the task is too hard or too easy for this model, or the reward function does "
                "not recognise its answers; to see them in completions.jsonl set settings.dynamic_sampling = 'off'."
            )
        if numbers.get("unscored_share") == 1.0:
            return "No completion was scored: the reward functions gave None or NaN for all of them."
        if numbers.get("truncated_share") == 1.0:
            return "Every completion was cut off at rollout.max_tokens, perhaps before its answer: raise it."
        low, high = min(self._rewards), max(self._rewards)
        if low == high:
            return (
                f"Every reward was {low:.4g}: the task is too hard or too easy for this model, or the reward function does not "
                "recognise its answers; compare completions and rewards in completions.jsonl."
            )
        return (
            "The completions of a prompt are alike: raise rollout.temperature or rollout.samples_per_prompt, or use a reward "
            "that tells them apart."
        )
