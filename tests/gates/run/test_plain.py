"""Which cases are plain: ordinary numbers in arrays (B, T), every optional argument neutral."""

from typing import Any

import numpy as np
import pytest

from gates.registry import load
from gates.run.inputs import inputs
from gates.run.plain import plain
from gates.run.plan import Options, plan, seed_of

SHAPE = (2, 3)


def verdict_of(gate: str, case: str) -> bool:
    """Whether a case of the catalogue is plain."""
    known = load()
    found = plan([known.gates[gate]], [known.subjects["numpy"]], quick=False)
    (planned,) = [one for one in found if one.case.name == case]
    return plain(planned.gate, planned.case, inputs(planned.gate, planned.case, seed_of(planned, Options())))


@pytest.mark.parametrize(
    ("gate", "case", "expected"),
    [
        ("loss.grpo.matches-definition", "ragged", True),
        ("loss.grpo.matches-definition", "empty-row", False),
        ("kl.k3.matches-definition", "right-none-float32", True),
        ("kl.k3.matches-definition", "flat-sum-float32", False),
        ("kl.k3.matches-definition", "clamped-right-mean-float32", False),
        ("kl.k3.matches-definition", "layouts-right-none-float32", False),
        ("logprobs.selective.matches-definition", "normal-float32", True),
        ("logprobs.selective.matches-definition", "normal-float16", False),
        ("logprobs.selective.matches-definition", "several-float32", False),
        ("logprobs.selective.matches-definition", "some-ignored-float32", False),
        ("advantages.matches-definition", "group-mean-add-ddof1-float32", True),
        ("preference.dpo.matches-definition", "plain-ordinary-float32", True),
        ("preference.dpo.matches-definition", "plain-no-reference-float32", False),
        ("preference.reference-free", "plain-free-dpo-float32", False),
        ("preference.simpo.matches-definition", "plain-ordinary-float32", True),
    ],
)
def test_layouts_and_optional_arguments_are_not_plain(gate: str, case: str, expected: bool) -> None:
    assert verdict_of(gate, case) is expected


def test_every_definition_has_a_plain_case() -> None:
    """Otherwise nothing that raises there would ever fail; PPO has an advantage for each token."""
    known = load()
    without: dict[str, Any] = {}
    for gate in known.gates.values():
        if gate.level == "definition" and not gate.id.endswith(
            ("compositions.match-definitions", "unscored-rewards", "ppo.matches-definition")
        ):
            own = [one for one in plan([gate], [known.subjects["numpy"]], quick=False) if not one.case.model]
            if own and not any(_plain(one) for one in own):
                without[gate.id] = np.unique([one.case.name for one in own])
    assert not without


def _plain(planned: Any) -> bool:
    return plain(planned.gate, planned.case, inputs(planned.gate, planned.case, seed_of(planned, Options())))
