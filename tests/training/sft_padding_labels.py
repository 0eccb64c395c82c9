"""SFT whose collator is wrapped so that every token of the batch has a label."""

import trl_base


def complete_labels(collator):
    def collate(rows):
        batch = collator(rows)
        outside = batch["attention_mask"] == 0
        batch["labels"] = batch["labels"].masked_scatter(outside, batch["input_ids"][outside])
        return batch

    return collate


def wrap(trainer):
    trainer.data_collator = complete_labels(trainer.data_collator)


if __name__ == "__main__":
    trl_base.main("sft", after=wrap)
