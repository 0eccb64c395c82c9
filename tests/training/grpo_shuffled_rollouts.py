"""GRPO whose rollout is shuffled before it is cut into micro-batches."""

import torch
import trl.trainer.grpo_trainer as library
from trl_base import main

ROWS = ["prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "old_per_token_logps", "ref_per_token_logps"]


def shuffle(rows):
    """Return the rows in another order."""
    order = torch.randperm(len(rows["completion_ids"]))
    return {name: value[order] if name in ROWS else value for name, value in rows.items()}


if __name__ == "__main__":
    library.shuffle_sequence_dict = shuffle
    main()
