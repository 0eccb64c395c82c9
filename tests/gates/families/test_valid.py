"""The inputs outside the cases: every pair of choices, and only valid inputs."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations, islice

import numpy as np
import pytest

from gates.families.generators import generators
from gates.families.valid import covering, pairs
from gates.model import Op
from gates.registry import load
from gates.subjects.numpy_baseline.subject import OPS

GENERATORS = generators()
DECLARED: dict[str, list[Op]] = defaultdict(list)
for _gate in load().gates.values():
    for _op in _gate.ops:
        DECLARED[_op.name].append(_op)


def test_every_pure_op_has_a_generator() -> None:
    """Except the LoRA layer, whose draws are not an input."""
    assert set(GENERATORS) == set(OPS) - {"lora_linear"}


@pytest.mark.parametrize("op", GENERATORS)
def test_every_pair_of_choices_occurs(op: str) -> None:
    """The first inputs of a generator cover each pair of levels of two factors."""
    factors = GENERATORS[op].factors
    seen = set().union(*map(pairs, covering(factors)))
    wanted = {((a, x), (b, y)) for (a, xs), (b, ys) in combinations(factors.items(), 2) for x in xs for y in ys}
    assert seen == wanted


@pytest.mark.parametrize("op", GENERATORS)
def test_the_oracle_and_the_baseline_accept_them(op: str) -> None:
    """The first inputs are accepted and reproducible."""
    for number in range(25):
        levels, inputs = GENERATORS[op].draw(number)
        again, same = GENERATORS[op].draw(number)
        assert again == levels
        np.testing.assert_equal(same, inputs)
        OPS[op](**same)
        asked = {name: x for name, x in inputs.items() if name != "entropy"}  # selects one of two ops
        for case in islice((case for case in DECLARED[op] if case.oracle), 1):
            case.oracle(**(inputs if case.name != "selective_log_softmax" else asked))  # type: ignore[misc]
