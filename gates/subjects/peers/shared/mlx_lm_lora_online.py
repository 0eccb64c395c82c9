"""What stands in place of sampling and judging in mlx-lm-lora's Online DPO: given completions, and the rewards that compare them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from mlx_lm_lora.trainer import online_dpo_trainer
from peer_words import Words, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np


class Generator:
    """In place of mlx-lm's `BatchGenerator`: the two completions of each prompt, a token of each at a time."""

    prompts: Sequence[Sequence[int]]
    completions: Sequence[Sequence[int]]

    def __init__(self, *_: Any, **__: Any) -> None:
        self.given: dict[int, list[int]] = {}

    def insert(self, prompts: Any, _limits: Any, *, all_tokens: Any, **_: Any) -> list[int]:
        """Return a number for each prompt; a prompt stands twice."""
        whole = [[*before, *prompt] for before, prompt in zip(all_tokens, prompts, strict=True)]
        known = [list(prompt) for prompt in self.prompts]
        for place, prompt in enumerate(whole):
            self.given[place] = list(self.completions[2 * known.index(prompt) + place % 2])
        return list(self.given)

    def next_generated(self) -> list[Any]:
        """Return the next token of each row that has one."""
        return [SimpleNamespace(uid=uid, token=row.pop(0)) for uid, row in self.given.items() if row]

    def close(self) -> None:
        """Close nothing."""


def judge(prompts: Sequence[Sequence[int]], rewards: np.ndarray[Any, Any]) -> type:
    """Return a judge that prefers the completion of the higher reward."""
    first = {text(prompt): 0 if rewards[2 * k] >= rewards[2 * k + 1] else 1 for k, prompt in enumerate(prompts)}
    verdicts = SimpleNamespace(judge=lambda names, **_: [first[name] for name in names])
    return lambda *_, **__: verdicts  # type: ignore[return-value]  # called as the judge's class is


def train(policy: Any, other: Any, optimizer: Any, given: Any, rewards: Any, **more: Any) -> None:
    """Run its trainer on given completions."""
    Generator.prompts, Generator.completions = given.prompts, given.completions
    online_dpo_trainer.BatchGenerator = Generator
    online_dpo_trainer.HumanPairwiseJudge = judge(given.prompts, rewards)
    rows = [{"prompt": prompt, "prompt_text": text(prompt)} for prompt in given.prompts]
    online_dpo_trainer.train_online_dpo(policy, other, Words(), optimizer, rows, None, judge_model="human", **more)
