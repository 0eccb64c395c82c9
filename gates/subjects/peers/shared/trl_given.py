# ruff: noqa: SLF001  what samples and what tokenizes in trainers is private
"""The rows of a case as TRL's trainers take them, and what stands in place of their sampling and tokenization."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from datasets import Dataset
from trl import DPOTrainer
from trl.experimental.online_dpo import OnlineDPOTrainer
from trl.experimental.utils import truncate_right
from trl.trainer import kto_trainer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PREFERENCE = ("orpo", "cpo", "simpo")  # trainers whose pairs are tokenized by one method


class Rows:
    """The rows of a case. A prompt's text is its number, and each time that it is asked for, its next completion is given."""

    def __init__(self, prompts: Any, completions: Any, rewards: Any, group_size: int) -> None:
        self.prompts, self.completions, self.rewards, self.size = prompts, completions, rewards, group_size

    def places(self, names: Sequence[str]) -> list[int]:
        """Return the row of each prompt's next occurrence."""
        seen: Counter[str] = Counter()
        places = []
        for name in names:
            places.append(int(name) * self.size + seen[name])
            seen[name] += 1
        return places

    def reward(self, prompts: list[str], **_: Any) -> list[float]:
        """Return the rewards of rows: a reward function of TRL."""
        return [float(self.rewards[row]) for row in self.places(prompts)]

    def rollout(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the ids of prompts and completions."""
        return {
            "prompt_ids": [list(self.prompts[int(name)]) for name in names],
            "completion_ids": [list(self.completions[row]) for row in self.places(names)],
        }

    def data(self, trainer: str) -> Dataset:
        """Return the rows as a trainer takes them."""
        prompts = [list(prompt) for prompt in self.prompts]
        if trainer == "dpo":
            chosen, rejected = self.completions[0::2], self.completions[1::2]
            return Dataset.from_dict({"prompt_ids": prompts, "chosen_ids": chosen, "rejected_ids": rejected})
        if trainer == "kto":
            chats = [
                ([_turn("user", a)], [_turn("assistant", b)]) for a, b in zip(prompts, self.completions, strict=True)
            ]
            desirable = [bool(reward > 0) for reward in self.rewards]
            return Dataset.from_dict(
                {"prompt": [a for a, _ in chats], "completion": [b for _, b in chats], "label": desirable}
            )
        if trainer == "sft":
            rows = list(zip(prompts, self.completions, strict=True))
            labels = [[-100] * len(prompt) + list(completion) for prompt, completion in rows]  # as it documents for ids
            return Dataset.from_dict({"input_ids": [[*a, *b] for a, b in rows], "labels": labels})
        names = [str(index) for index in range(len(prompts))]
        return Dataset.from_dict(
            dict.fromkeys(("prompt", "chosen", "rejected"), names) if trainer in PREFERENCE else {"prompt": names}
        )

    def tokenized(self, feature: Mapping[str, str], **_: Any) -> dict[str, Any]:
        """Return the ids of a pair, whose texts are its number, in place of what ORPO and CPO make of texts."""
        index = int(feature["prompt"])
        prompt, made = list(self.prompts[index]), dict[str, Any]()
        for name, row in (("chosen", 2 * index), ("rejected", 2 * index + 1)):
            ids = [*prompt, *self.completions[row]]
            labels = [-100] * len(prompt) + ids[len(prompt) :]
            made |= {f"{name}_input_ids": ids, f"{name}_attention_mask": [1] * len(ids), f"{name}_labels": labels}
        return made | {"prompt_input_ids": prompt, "prompt_attention_mask": [1] * len(prompt)}


class Tokenized(DPOTrainer):
    """DPO on rows of ids: what it makes of texts is left out."""

    def _prepare_dataset(self, dataset: Dataset, *_: Any, **__: Any) -> Dataset:
        return dataset


def give(trainer: Any, rows: Rows) -> None:
    """Give RLOO the rows in place of what it samples."""
    whole = trainer._generate

    def generate(names: list[str]) -> Any:
        _, ids, texts = whole(names)
        return rows.rollout(names)["prompt_ids"], ids, texts

    trainer._tokenize_prompts = lambda names: (list(names), None, {})
    trainer._generate_single_turn = lambda names, *_: rows.rollout(names)["completion_ids"]
    trainer._generate = generate


def kind(trainer: str, made: type, rows: Rows) -> type:
    """Return a trainer's class, whose texts are those of rows."""
    if trainer == "dpo":
        return Tokenized
    if trainer in PREFERENCE:
        return type(made.__name__, (made,), {"tokenize_row": rows.tokenized})
    if trainer == "kto":
        kto_trainer._tokenize = _words
    if trainer == "online_dpo":
        return type(made.__name__, (Sampled,), {"rows": rows})
    return made


def _turn(role: str, ids: Sequence[int]) -> dict[str, str]:
    return {"role": role, "content": " ".join(map(str, ids))}


def _words(_tokenizer: Any, messages: Sequence[Mapping[str, str]], **_: Any) -> dict[str, list[int]]:
    """Return the ids of messages whose words are ids."""
    return {"input_ids": [int(word) for message in messages for word in message["content"].split()]}


class Sampled(OnlineDPOTrainer):
    """Online DPO whose completions are given: the first of each prompt, then the second of each, as it samples them."""

    rows: Rows

    def _generate(self, _model: Any, names: list[str], images: Any = None) -> Any:  # noqa: ARG002  its signature
        prompts = [list(self.rows.prompts[int(name)]) for name in names] * 2
        completions = [self.rows.completions[2 * int(name) + side] for side in (0, 1) for name in names]
        pad, wide = self._tokenizer.pad_token_id, max(map(len, prompts))
        longest = max(map(len, completions))
        ids = torch.tensor([[pad] * (wide - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (wide - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        sampled = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in completions])
        return ids, mask, *truncate_right(sampled, self.eos_token_ids, pad), None
