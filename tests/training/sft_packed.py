"""SFT with short texts packed into longer rows."""

import trl_base as base
from datasets import Dataset
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling


def changes(trainer_class):
    class Trainer(trainer_class):
        def __init__(self, *args, processing_class, train_dataset, **kwargs):
            pairs = zip(base.PAIRS["prompt"], base.PAIRS["chosen"], strict=True)
            data = Dataset.from_dict({"text": [prompt + chosen for prompt, chosen in pairs]})
            super().__init__(*args, processing_class=processing_class, train_dataset=data, **kwargs)

    return Trainer


def collate(trainer):
    trainer.data_collator = DataCollatorForLanguageModeling(pad_token_id=trainer.processing_class.pad_token_id)


if __name__ == "__main__":
    base.main("sft", actual={"packing": True, "max_length": 48}, trainer_changes=changes, after=collate)
