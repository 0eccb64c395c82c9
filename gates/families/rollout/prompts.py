"""Prompts of rollouts: sums, drawn from a seed, as token ids.

Cases carry the recipe, from which gates draw more prompts of the same style; subjects receive the ids. A text becomes ids by
the byte alphabet of the tiny models' tokenizer. To any other model they are just ids: what a subject makes of texts, such as
merges, a start token or a chat template, is asked by the gates of the tokenizer.
"""

from __future__ import annotations

import numpy as np

from gates.model import Array, Recipe
from gates_reference import sums

PRINTABLE = 30  # the id of a printable ASCII character is its code less this: `!`, 33, comes after three special tokens
CUT = 2  # the first half of a worded sum is left out: rollouts cost by tokens, and 30 to 80 are far beyond every window of the tiny models
SPACE = 223  # after 188 printable characters of Latin-1 and 32 control characters


def recipe(seed: int, count: int, style: str = "plain") -> Recipe:
    """Return the recipe of worded or plain sums with ragged lengths."""
    return Recipe("data", {"kind": "sums", "seed": int(seed), "count": count, "style": style})


def token_ids(prompts: Recipe) -> list[Array]:
    """Return one (P,) int32 array for each prompt of a recipe."""
    drawn = sums.sums(int(prompts.spec["seed"]), int(prompts.spec["count"]), prompts.spec["style"])
    ids = [encoded(row["prompt"]) for row in drawn]
    return ids if prompts.spec["style"] == "plain" else [row[len(row) // CUT :] for row in ids]


def encoded(text: str) -> Array:
    """Return the ids (P,) of a text in ASCII, a token for each byte."""
    codes = np.frombuffer(text.encode("ascii"), np.uint8).astype(np.int32)
    return np.where(codes == ord(" "), SPACE, codes - PRINTABLE).astype(np.int32)
