"""A choice that a subject declares beside a preset is what it is asked, named by, and diagnosed against."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import here

from gates.provided import Provided
from gates.registry import load
from gates.run.choices import chosen
from gates.run.judge import lacking
from gates.run.plan import PlannedCase
from gates.subjects import catalogue
from gates.worker.process import Hello, Worker

CODE = """
import numpy as np

def policy_loss(*, policy, old, advantages, mask, epsilon_low, epsilon_high, **rest):
    lp, before = np.where(mask, policy, 0.0), np.where(mask, old, 0.0)
    tokens = np.maximum(mask.sum(axis=1, keepdims=True), 1)
    ratio = np.exp((lp - before).sum(axis=1, keepdims=True) / tokens) * np.ones(lp.shape)
    a = advantages[:, None] * np.ones(lp.shape)
    clipped = np.clip(ratio, 1.0 - epsilon_low, 1.0 + epsilon_high) * a
    weight = mask / WEIGHT
    loss = -(np.minimum(ratio * a, clipped) * weight).sum()
    gradient = np.where(ratio * a <= clipped, -ratio * a, 0.0) * weight
    return {"loss": float(loss), "gradient": gradient.astype(policy.dtype)}

def refusing(*, lengths, weights, beta, delta, dapo_denominator=None, row_mask=None, **inputs):
    if row_mask is not None or delta or dapo_denominator not in {None, "global"}:
        raise NotImplementedError("not asked here")
    assert (inputs.get("aggregation"),) == AXES.get("aggregation", (None,))
    return policy_loss(**inputs)

OPS = {"policy_loss": refusing}
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("gspo",), "rows": ("mask",), "ratio": ("off-policy",), "advantages": ("row",),
        "weights": (False,), "kl_estimator": ("none asked",), **AXES,
    }
}
"""
DECLARED = 'AXES = {"aggregation": ("token-mean",)}\n'
BY_TOKENS, BY_ROWS = "mask.sum()", "(len(mask) * tokens)"
SELECT = ("loss.gspo.matches-definition", "loss.order-does-not-matter", "loss.variants.match-definitions")


def judged(folder: Path, axes: str, weight: str) -> tuple[int, str, list[dict[str, str]]]:
    """Check GSPO with these declarations and this weight of a token."""
    (folder / "mine.py").write_text(axes + CODE.replace("WEIGHT", weight))
    done = here("check", *SELECT, "--subject", "./mine.py", "--no-minimise", "--out", str(folder / "out"), cwd=folder)
    lines = next((folder / "out").glob("*.jsonl")).read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return done.returncode, done.stdout, [record for record in records if record.get("record") == "verdict"]


def test_the_composition_is_judged_and_named(tmp_path: Path) -> None:
    """GSPO's ratio under a token mean is right where it is declared, in GSPO's own cases and as a variant."""
    code, out, verdicts = judged(tmp_path, DECLARED, BY_TOKENS)
    assert code == 0, out
    assert "policy_loss[gspo, token mean]" in out
    asked = {(verdict["gate"], verdict["op"]) for verdict in verdicts if verdict["status"] == "correct"}
    assert {gate for gate, _ in asked} == {SELECT[0], SELECT[2]}
    assert {op for _, op in asked} == {"policy_loss[gspo, token mean]"}
    law = next(verdict for verdict in verdicts if verdict["gate"] == SELECT[1] and verdict["case"] == "gspo-plain")
    assert law["reason"].startswith("loss.order-does-not-matter is asked of presets only")


def test_without_the_declaration_it_is_another_loss(tmp_path: Path) -> None:
    code, out, _ = judged(tmp_path, "AXES = {}\n", BY_TOKENS)
    assert code == 1
    assert "policy_loss[gspo]" in out
    assert "token mean over the step" in out


def test_a_declared_composition_can_be_wrong(tmp_path: Path) -> None:
    """The row mean of the preset is diagnosed against what is declared."""
    code, out, _ = judged(tmp_path, DECLARED, BY_ROWS)
    assert code == 1
    assert "policy_loss[gspo, token mean]" in out
    assert "mean over rows of each row's token mean (asked: token mean" in " ".join(out.split())


def test_choices_that_do_not_go_together_are_unsupported(tmp_path: Path) -> None:
    _, _, verdicts = judged(tmp_path, 'AXES = {"ratio_level": ("none",)}\n', BY_TOKENS)
    assert {verdict["status"] for verdict in verdicts} == {"unsupported"}
    assert any("without a ratio there is nothing to bound" in verdict["reason"] for verdict in verdicts)


def test_an_unknown_word_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text('AXES = {"aggregation": ("tokenmean",)}\n' + CODE.replace("WEIGHT", BY_TOKENS))
    done = here("check", *SELECT, "--subject", "./mine.py", cwd=tmp_path)
    assert "aggregation 'tokenmean', which no case asks for" in done.stdout + done.stderr
    assert "did you mean 'token-mean'?" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("function", "implied"),
    [
        ("def policy_loss(policy, old): ...", ("aggregation",)),
        ("def policy_loss(policy, aggregation): ...", ()),
        ("def policy_loss(policy, **rest): ...", ()),
        ("policy_loss = print.__call__", ()),
        ("policy_loss = dict.fromkeys", ("aggregation",)),
    ],
)
def test_a_lone_choice_is_passed_to_a_function_that_has_its_argument(
    tmp_path: Path, function: str, implied: tuple[str, ...]
) -> None:
    """Code that knows one composition only need not take the word for it; of two choices it must be told which."""
    for choices, left_out in ((("token-mean",), implied), (("token-mean", "row-sum"), ())):
        conventions = {"policy_loss": {"aggregation": choices}}
        path = tmp_path / "mine.py"
        path.write_text(f"{function}\nOPS = {{'policy_loss': policy_loss}}\nCONVENTIONS = {conventions}\n")
        worker = Worker.start(catalogue.from_file(path, None), threads=1)
        try:
            assert worker.hello.provides["policy_loss"].implied == left_out
        finally:
            worker.close()


@pytest.mark.parametrize(
    ("algorithm", "choices", "widths"),
    [
        ("gspo", {"clip_width": ("one",)}, {"epsilon_low": 3e-2, "epsilon_high": 3e-2}),
        ("grpo", {"clip_width": ("two",)}, {"epsilon_low": 0.2, "epsilon_high": 0.25}),
        ("cispo", {"lower_bound": (True,)}, {"epsilon_low": 0.2, "epsilon_high": 0.28}),
        ("cispo", {"cispo_bound": ("absolute", None)}, {"cispo_bound": "absolute", "epsilon_high": 1.28}),
        ("grpo", {"bound": ("cap",), "cispo_bound": ("absolute",)}, {"bound": "cap", "epsilon_high": 1.28}),
    ],
)
def test_every_case_has_the_widths_that_are_declared(
    algorithm: str, choices: dict[str, tuple[Any, ...]], widths: dict[str, Any]
) -> None:
    """A subject with one choice is asked all cases of an algorithm with it, not only those made for it."""
    gate = load().gates[f"loss.{algorithm}.matches-definition"]
    hello = Hello({"policy_loss": Provided("policy_loss", {"algorithm": (algorithm,), **choices})}, {}, {})
    planned = PlannedCase(gate, load().subjects["numpy"], next(case for case in gate.cases if case.name == "ragged"))
    asked = chosen(planned, hello)
    assert lacking(asked, hello) == ""
    inputs = asked.case.make(np.random.default_rng(0))
    assert {name: inputs[name] for name in widths} == pytest.approx(widths)
