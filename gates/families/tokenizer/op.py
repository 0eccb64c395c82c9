"""Ops of a tokenizer."""

from __future__ import annotations

from gates.model import Op, Output

ENCODE_PROMPTS = Op(
    name="encode_prompts",
    outputs={
        "ids": Output(kind="i", ndim=1),  # of all texts, one after the other
        "lengths": Output(kind="i", ndim=1),
    },
    inputs={
        "model": "a recipe, a folder or a Hugging Face id: where the tokenizer lies",
        "texts": "list of str",
        "chat": "whether each text is a user's message in the chat template, up to where the answer starts",
        "by": '"trainer": as the trainer encodes prompts; "transformers": by AutoTokenizer itself',
    },
    source="the tokenizer's own files, read by transformers' AutoTokenizer",
)
DECODE_TOKENS = Op(
    name="decode_tokens",
    outputs={"texts": Output(kind="any")},  # a list of str
    inputs={"model": "as encode_prompts", "ids": "(N,) of all texts", "lengths": "(B,)"},
    source="the inverse of encode_prompts without the template, special tokens included",
)
