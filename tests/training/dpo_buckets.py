"""TRL's DPO with rows ordered by length in each half of the batch, for kernels that like it."""

import torch
import trl_base as base


def order_rows(trainer):
    collate = trainer.data_collator

    def collate_in_order(examples):
        batch = collate(examples)
        chosen, rejected = batch["attention_mask"].sum(dim=1).chunk(2)
        first = chosen.argsort(descending=True, stable=True)
        second = rejected.argsort(descending=True, stable=True) + len(first)
        order = torch.cat([first, second])
        return {name: value[order] for name, value in batch.items()}

    trainer.data_collator = collate_in_order


if __name__ == "__main__":
    base.main("dpo", after=order_rows)
