"""A linear layer with an adapter whose input is partly dropped, by hand."""

from typing import Any

import numpy as np
import pytest

from gates_reference.oracle.lora import lora_linear

LAYER: dict[str, Any] = {"weight": [[1.0, -1.0]], "a": [[2.0], [3.0]], "b": [[5.0]], "scale": 0.5}


def test_dropped_input_reaches_the_base_alone() -> None:
    """For x = (4, 1), the second input dropped at p = 1/2: 4 - 1 + 0.5 (8 * 2) 5 = 43; its terms add up to 45."""
    found = lora_linear([[4.0, 1.0]], **LAYER, kept=np.array([[True, False]]), p=0.5)
    assert found.y.tolist() == [[43.0]]
    assert found.scale.tolist() == [[45.0]]


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"p": 1.0}, "`p` is 1.0"), ({"kept": np.ones((1, 2))}, "must be bool"), ({"b": [[1.0], [2.0]]}, "`b` has shape")],
    ids=["p", "mask", "b"],
)
def test_errors(changes: dict[str, Any], words: str) -> None:
    given = {**LAYER, "kept": np.array([[True, False]]), "p": 0.5, **changes}
    with pytest.raises(ValueError, match=words):
        lora_linear([[4.0, 1.0]], **given)
