"""GRPO with the list of prompts repeated as a whole for the samples."""

import torch
import torch_loop as base

rollout_of = base.make_rollout


def tokenize(tokenizer, prompts):
    """Return prompts repeated for their groups, padded on the left, and their mask."""
    rows = [tokenizer(prompt)["input_ids"] for prompt in prompts * base.SETTINGS["group_size"]]
    width = max(len(row) for row in rows)
    ids = torch.tensor([[tokenizer.pad_token_id] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return ids, mask


def make_rollout(model, tokenizer, generator):
    rollout = rollout_of(model, tokenizer, generator)
    rollout["groups"] = list(range(len(base.PROMPTS))) * base.SETTINGS["group_size"]
    return rollout


base.patch(tokenize=tokenize, make_rollout=make_rollout)

if __name__ == "__main__":
    base.main()
