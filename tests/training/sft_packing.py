"""TRL's SFT with the rows of a batch packed into one, so that nothing is padded."""

import torch
import trl_base as base


def pack(trainer):
    def packed(examples):
        ids = [token for example in examples for token in example["input_ids"]]
        labels = [label for example in examples for label in example["labels"]]
        row = torch.tensor([ids])
        return {"input_ids": row, "labels": torch.tensor([labels]), "attention_mask": torch.ones_like(row)}

    trainer.data_collator = packed


if __name__ == "__main__":
    base.main("sft", after=pack)
