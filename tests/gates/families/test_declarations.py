"""Each choice that an author declares is asked by some case, and so is each preset, by several."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gates_reference.algorithms import ALGORITHMS
from tests.gates.families import declarations

ROOT = Path(__file__).parents[3]
PEERS = ROOT / "gates" / "subjects" / "peers"
HONEST = ROOT / "tests" / "honest"
FILES = [path for path in sorted([*PEERS.glob("*.py"), *HONEST.glob("*_*.py")]) if "\nOPS" in path.read_text("utf-8")]
NOT_ASKED = {  # declared choices that no case names, and why
    "arithmetic": "float32 is what a subject may have; cases need float64",
    "ids_per_position": "one is the ordinary case, which names nothing",
    "min_tokens_to_keep": "a number of the call",
    "group_eps": "a number of the call",
    "batch_eps": "a number of the call",
}
LEAST = 3  # cases of a preset
EPS = (0.0, 1e-12, 1e-8, 1e-6, 1e-5, 1e-4)
PLAIN = {"rows": ("mask",), "advantages": ("row",), "dtype": ("float32",), "weights": (False,), "empty_rows": (False,)}
NARROW: tuple[dict[str, tuple[Any, ...]], ...] = (  # what a small library has
    {"clip_width": ("one",)},
    {"kl_estimator": (None,)},
    {"clip_width": ("one",), "kl_estimator": (None,), "dapo_denominator": ("global",)},
    {"clip_width": ("one",), "kl_estimator": ("k1",), "kl_ratio": ("none",)},
    {"clip_width": ("two",), "kl_clamp": (10.0,)},
    {"cispo_bound": ("absolute",), "lower_bound": (True,)},
)


@pytest.fixture(scope="module")
def subjects() -> dict[str, Any]:
    """Return the declarations and cases of each file."""
    command = [sys.executable, declarations.__file__, *map(str, FILES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_declared_choice_is_asked(subjects: dict[str, Any]) -> None:
    """By a case of a definition, together with the subject's other choices."""
    assert len(subjects) == len(FILES) > 40
    missing = [
        f"{name}: {op} declares {convention}={choice!r}"
        for name, found in subjects.items()
        for op, conventions in found["declared"].items()
        for convention, choices in conventions.items()
        for choice in choices
        if choice is not None and convention not in NOT_ASKED and not _asked(found["cases"][op], convention, choice)
    ]
    assert not missing, "\n".join(missing)


def _asked(cases: list[dict[str, Any]], convention: str, choice: Any) -> bool:
    named = [case["conventions"][convention] for case in cases if convention in case["conventions"]]
    return not named or any(
        any(_same(choice, each) for each in one) if isinstance(one, list) else _same(choice, one) for one in named
    )


def _same(choice: Any, other: Any) -> bool:
    numbers = all(isinstance(value, float) for value in (choice, other))
    return np.float32(choice) == np.float32(other) if numbers else choice == other


@pytest.mark.parametrize("extra", NARROW, ids=str)
def test_a_narrow_loss_is_asked_several_cases(extra: dict[str, tuple[Any, ...]]) -> None:
    """Of each preset, whatever few choices a library has."""
    counts = Counter[str]()
    for row in ALGORITHMS.values():
        given = {**PLAIN, **extra, "algorithm": (row.name,)}
        given |= {"advantages": ("token",)} if row.ratio_level == "seq_mean_token" else {}
        counts[row.name] = len(list(declarations.asked({"policy_loss": given})))
    assert min(counts.values()) >= LEAST, counts


def test_an_on_policy_loss_is_asked_several_cases() -> None:
    """Of each preset: every ratio is 1, and its slope is not."""
    for row in ALGORITHMS.values():
        given = {**PLAIN, "algorithm": (row.name,), "ratio": ("on-policy",)}
        given |= {"advantages": ("token",)} if row.ratio_level == "seq_mean_token" else {}
        asked = [conventions for _, _, conventions in declarations.asked({"policy_loss": given})]
        assert len(asked) >= LEAST, row.name
        assert {conventions.get("ratio", "on-policy") for conventions in asked} == {"on-policy"}


@pytest.mark.parametrize("mode", ["add", "inside", "threshold", "floor", "threshold-add"])
def test_every_advantage_is_asked(mode: str) -> None:
    """With any scale, ddof, ε and baseline that go together."""
    for scale, ddof, eps, baseline in product(
        ("group", "batch"), (0, 1), EPS, ("mean", "leave-one-out", "batch", "none")
    ):
        if scale == "group" and baseline in {"batch", "none"}:
            continue
        given = {"scale": (scale,), "ddof": (ddof,), "eps": (eps,), "eps_mode": (mode,), "baseline": (baseline,)}
        asked = [conventions for _, _, conventions in declarations.asked({"group_advantages": given})]
        assert len(asked) >= LEAST, given
        assert {conventions["eps"] for conventions in asked if "eps" in conventions} == {eps}


def test_a_choice_that_nobody_asks_is_found() -> None:
    """Otherwise the tests above would show nothing."""
    assert not list(declarations.asked({"policy_loss": {"algorithm": ("mine",)}}))
