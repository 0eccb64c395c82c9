"""SFT on conversations of several turns, on responses only."""

import trl_base as base
from datasets import Dataset

DIALOGUES = [
    [("user", "one two"), ("assistant", "five"), ("user", "three"), ("assistant", "six seven")],
    [("user", "what is it"), ("assistant", "x"), ("tool", "42"), ("assistant", "it is 42")],
    [("user", "y"), ("assistant", "ten"), ("user", "and"), ("assistant", "eleven")],
    [("user", "z"), ("assistant", "call"), ("tool", "nine"), ("assistant", "nine it is")],
]
RESPONSE = "<|im_start|>assistant\n"


def rows_of(tokenizer):
    """Return tokens, and labels from the response template on."""
    marker = tokenizer.encode(RESPONSE, add_special_tokens=False)
    for turns in DIALOGUES:
        messages = [{"role": role, "content": content} for role, content in turns]
        text = tokenizer.apply_chat_template(messages, tokenize=False)
        ids = tokenizer.encode(text, add_special_tokens=False)
        spots = range(len(ids) - len(marker) + 1)
        start = next(spot for spot in spots if ids[spot : spot + len(marker)] == marker) + len(marker)
        yield {"input_ids": ids, "labels": [-100] * start + ids[start:]}


def changes(trainer_class):
    class Trainer(trainer_class):
        def __init__(self, *args, processing_class, train_dataset, **kwargs):
            data = Dataset.from_list(list(rows_of(processing_class)))
            super().__init__(*args, processing_class=processing_class, train_dataset=data, **kwargs)

    return Trainer


if __name__ == "__main__":
    base.main("sft", trainer_changes=changes)
