"""Train a byte-level BPE tokenizer on a built-in corpus, and write it in the Hugging Face layout."""

import json
from pathlib import Path
from typing import Final

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from gates_reference import sums

PAD: Final = "<|endoftext|>"
START: Final = "<|im_start|>"
EOS: Final = "<|im_end|>"
PAD_ID: Final = 0
EOS_ID: Final = 2
SMALLEST: Final = 256 + 3
"""The smallest vocabulary: every byte and the three special tokens."""

# ChatML, the template of the Qwen family.
CHAT_TEMPLATE: Final = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _corpus() -> list[str]:
    worded = [row["prompt"] + f" The answer is {row['answer']}." for row in sums.sums(0, 400)]
    plain = [row["prompt"] + str(row["answer"]) for row in sums.sums(1, 100, "plain")]
    return worded + plain


def train(vocab: int) -> Tokenizer:
    """Train a tokenizer of exactly `vocab` entries.

    Raises:
        ValueError: the corpus is too small for that many merges.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[PAD, START, EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    if tokenizer.get_vocab_size() != vocab:
        raise ValueError(f"vocab is {vocab}, the built-in corpus gives at most {tokenizer.get_vocab_size()}")
    return tokenizer


def write(folder: Path, vocab: int) -> None:
    """Write `tokenizer.json`, `tokenizer_config.json` and `special_tokens_map.json`."""
    train(vocab).save(str(folder / "tokenizer.json"))
    special = {"eos_token": EOS, "pad_token": PAD}
    config = {
        **special,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
    }
    for name, content in (("tokenizer_config.json", config), ("special_tokens_map.json", special)):
        (folder / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
