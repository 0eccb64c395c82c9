"""A constant added to the counts of a loss is declared by its size, and then what every case asks."""

import json
from pathlib import Path

import pytest
from command_line import here

CODE = """
import numpy as np


def policy_loss(*, policy, old, advantages, mask, epsilon_low, epsilon_high):
    m = mask.astype(np.float64)
    r, a = np.exp(policy.astype(np.float64) - old), advantages.astype(np.float64)[:, None]
    free, held = r * a, np.clip(r, 1 - epsilon_low, 1 + epsilon_high) * a
    weight = WEIGHT
    gradient = -np.where(free <= held, free, 0.0) * weight
    return {"loss": float(-(np.minimum(free, held) * weight).sum()), "gradient": gradient.astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
CONVENTIONS = {"policy_loss": {
    "algorithm": (ALGORITHM,), "weights": (False,), "ratio": ("off-policy",), "kl_estimator": (None,), "advantages": ("row",),
    "rows": ("mask", "holes"), "dapo_denominator": ("global", None), MORE
}}
"""
ROWS = "m / (len(m) * (np.maximum(m.sum(axis=1, keepdims=True), 1) + EPS))"
TOKENS = "m / (m.sum() + EPS)"
DECLARED = '"count_eps": ({eps!r},)'


def checked(folder: Path, algorithm: str, weight: str, eps: float, more: str = "") -> tuple[int, str]:
    """Return exit code and words of a check of a loss that adds a constant, with further declarations."""
    code = CODE.replace("WEIGHT", weight.replace("EPS", repr(eps)))
    (folder / "mine.py").write_text(code.replace("ALGORITHM", repr(algorithm)).replace("MORE", more))
    gate = f"loss.{algorithm}.matches-definition"
    done = here("check", gate, "mine.py", "--jobs", "1", "--no-minimise", "--out", "o", cwd=folder)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize(("algorithm", "weight", "eps"), [("grpo", ROWS, 1e-5), ("dapo", TOKENS, 1e-3)])
def test_it_differs_until_it_is_declared(tmp_path: Path, algorithm: str, weight: str, eps: float) -> None:
    """The line says what to declare; no case of another size is left."""
    code, text = checked(tmp_path, algorithm, weight, eps)
    assert code == 1
    assert f"{eps:g} added to the count of tokens; declare count_eps=({eps!r},) if it is meant" in text
    code, text = checked(tmp_path, algorithm, weight, eps, DECLARED.format(eps=eps))
    assert code == 0, text
    assert "count_eps" not in text
    (*_, last) = sorted((tmp_path / "o").glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
    verdicts = [record for record in map(json.loads, last.read_text().splitlines()) if record["record"] == "verdict"]
    assert [v["status"] for v in verdicts if v["case"].endswith("count-eps")] == ["correct"]


def test_what_is_declared_is_held_to(tmp_path: Path) -> None:
    """Another size than the declared one, such as one that was changed later."""
    code, text = checked(tmp_path, "grpo", ROWS, 1e-4, DECLARED.format(eps=1e-5))
    assert code == 1
    assert (
        "DIFFERS policy_loss[grpo] computes: 0.0001 added to the count of tokens; declare count_eps=(0.0001,)" in text
    )


def test_a_size_that_cannot_be_is_unsupported(tmp_path: Path) -> None:
    code, text = checked(tmp_path, "grpo", ROWS, 1e-5, '"count_eps": (-1.0,)')
    assert code == 3, text
