"""SFT with the end token as the padding token and a collator that ignores padding."""

import trl_base as base
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling


class Collator(DataCollatorForLanguageModeling):
    def torch_call(self, examples):
        batch = super().torch_call(examples)
        batch["labels"][batch["input_ids"] == self.pad_token_id] = -100
        return batch


def changes(trainer_class):
    class Trainer(trainer_class):
        def __init__(self, *args, processing_class, **kwargs):
            processing_class.pad_token = processing_class.eos_token
            collator = Collator(pad_token_id=processing_class.pad_token_id)
            super().__init__(*args, processing_class=processing_class, data_collator=collator, **kwargs)

    return Trainer


if __name__ == "__main__":
    base.main("sft", trainer_changes=changes)
