"""Prompts of rollouts as token ids."""

import numpy as np
import pytest

from gates.families.rollout.prompts import recipe, token_ids
from gates_reference import sums, tiny_tokenizer


@pytest.mark.parametrize("style", ["plain", "worded"])
def test_ids_are_the_bytes_of_the_text(style: str) -> None:
    """The smallest tokenizer of the tiny models, which has bytes alone, gives the same ids."""
    tokenizer = tiny_tokenizer.train(tiny_tokenizer.SMALLEST)
    texts = [row["prompt"] for row in sums.sums(5, 20, style)]
    whole = [tokenizer.encode(text).ids for text in texts]
    assert [ids.tolist() for ids in token_ids(recipe(5, 20, style))] == [
        ids if style == "plain" else ids[len(ids) // 2 :] for ids in whole
    ]


def test_prompts_are_ragged_arrays_of_int32() -> None:
    prompts = token_ids(recipe(5, 20))
    assert {(ids.dtype, ids.ndim) for ids in prompts} == {(np.dtype(np.int32), 1)}
    assert len({len(ids) for ids in prompts}) >= 2
