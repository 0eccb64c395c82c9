"""Verdicts on updates whose script has noted numbers of tokens: log-probs of the sampler, and advantages of GAE."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings import Line, Made, Model, lines
from scenarios import GROUP, LENGTHS
from test_verdict import GROUPS, TRL, judged, rewards, scores

from gates.model import Array

GRPO = {"algorithm": "grpo", "epsilon_low": 0.2, "epsilon_high": 0.2, **TRL}
TIS = {**GRPO, "correction": "tis", "correction_level": "token", "correction_high": 1.3}
Weigh = Callable[[Array], Array]  # the weights of tokens, given trainer − sampler


def inside(line: Line) -> slice:
    """The slots of a completion."""
    return slice(len(line.prompt), len(line.prompt) + line.length)


def sampled(seed: int = 5) -> list[Array]:
    """What another engine says of the tokens that were sampled, a list a row."""
    rng, model = np.random.default_rng(seed), Model.drawn()
    return [
        model.log_probs(line.ids)[inside(line)] + rng.normal(0.0, 0.3, line.length) for line in lines(LENGTHS, GROUP)
    ]


def update(values: list[Array]) -> Made:
    """A row mean of what each token of a row weighs."""
    rows = lines(LENGTHS, GROUP)
    coefficients = [np.zeros(len(line.ids)) for line in rows]
    for line, row, weights in zip(rows, coefficients, values, strict=True):
        row[inside(line)] = -weights / line.length / len(rows)
    return Made(Model.drawn(), rows, coefficients)


def corrected(weigh: Weigh) -> Made:
    """An update whose tokens are weighed by trainer − sampler."""
    model, values = Model.drawn(), []
    for line, advantage, theirs in zip(lines(LENGTHS, GROUP), scores(rewards()), sampled(), strict=True):
        values.append(advantage * weigh(model.log_probs(line.ids)[inside(line)] - theirs))
    return update(values)


def token_tis(apart: Array) -> Array:
    return np.asarray(np.minimum(np.exp(apart), 1.3))


def said(settings: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A note of rewards and of the sampler's log-probs."""
    theirs = [row.tolist() for row in sampled()]
    return {"rewards": rewards(), "groups": GROUPS, "sampler_log_probs": theirs, "settings": settings, **more}


class TestCorrection:
    """Coefficients that carry an off-policy weight."""

    def test_as_noted(self, tmp_path: Path) -> None:
        verdict = judged(tmp_path, corrected(token_tis), **said(TIS))
        assert verdict.status == "correct", verdict

    def test_a_level_that_is_left_out_is_identified(self, tmp_path: Path) -> None:
        settings = {name: value for name, value in TIS.items() if name != "correction_level"}
        assert judged(tmp_path, corrected(token_tis), **said(settings)).status == "correct"

    def test_log_probs_behind_a_completion_are_its_padding(self, tmp_path: Path) -> None:
        padded = [[*row.tolist(), *[0.0] * (max(LENGTHS) - len(row))] for row in sampled()]
        note = said(TIS, sampler_log_probs=padded)
        assert judged(tmp_path, corrected(token_tis), **note).status == "correct"

    @pytest.mark.parametrize(
        ("weigh", "words"),
        [
            (np.ones_like, "no off-policy correction"),
            (lambda apart: np.minimum(np.exp(-apart), 1.3), "upside down"),
            (np.exp, "without its upper bound"),
        ],
        ids=["missing", "inverted", "unbounded"],
    )
    def test_a_mistake_has_its_name(self, weigh: Weigh, words: str, tmp_path: Path) -> None:
        verdict = judged(tmp_path, corrected(weigh), **said(TIS))
        assert (verdict.status, words in verdict.computes) == ("wrong", True), verdict

    def test_another_choice(self, tmp_path: Path) -> None:
        """Masked, where truncated is asked; and a weight where none is."""
        masked = corrected(lambda apart: np.where(np.exp(apart) > 1.3, 0.0, np.exp(apart)))
        verdict = judged(tmp_path / "mis", masked, **said(TIS))
        assert (verdict.status, "`correction` 'mis'" in verdict.remedy) == ("differs", True), verdict
        weighed = corrected(lambda apart: np.minimum(np.exp(apart), 2.0))
        verdict = judged(tmp_path / "tis", weighed, **said(GRPO))
        assert (verdict.status, "`correction` 'tis'" in verdict.remedy) == ("differs", True), verdict

    @pytest.mark.parametrize(
        ("note", "remedy"),
        [({"sampler_log_probs": None}, "note `sampler_log_probs`"), ({"sampler_log_probs": [[0.0]] * 8}, "for each")],
        ids=["none", "too few"],
    )
    def test_what_is_missing_is_said(self, note: dict[str, Any], remedy: str, tmp_path: Path) -> None:
        verdict = judged(tmp_path, corrected(token_tis), **said(TIS, **note))
        assert (verdict.status, remedy in verdict.remedy) == ("cannot tell", True), verdict


def of_tokens(seed: int = 8) -> list[Array]:
    """An advantage for each token."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=line.length) for line in lines(LENGTHS, GROUP)]


class TestAdvantages:
    """Advantages of tokens, such as those of GAE."""

    def noted(self) -> dict[str, Any]:
        return {"advantages": [row.tolist() for row in of_tokens()], "settings": {"algorithm": "grpo"}}

    def test_as_noted(self, tmp_path: Path) -> None:
        verdict = judged(tmp_path, update(of_tokens()), **self.noted())
        assert verdict.status == "correct", verdict

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda row: np.append(row[1:], 0.0), "advantages of the next token"),
            (lambda row: np.full(len(row), row.mean()), "the mean of a row's advantages"),
            (lambda row: -row, "the loss with the wrong sign"),
        ],
        ids=["late", "mean", "sign"],
    )
    def test_a_mistake_has_its_name(self, change: Weigh, words: str, tmp_path: Path) -> None:
        verdict = judged(tmp_path, update([change(row) for row in of_tokens()]), **self.noted())
        assert (verdict.status, words in verdict.computes) == ("wrong", True), verdict

    def test_nested_lists_of_rows_are_rows(self, tmp_path: Path) -> None:
        """Two prompts with four advantages each."""
        nested = scores(rewards()).reshape(2, 4).tolist()
        verdict = judged(
            tmp_path,
            update([np.full(n, a) for n, a in zip(LENGTHS, scores(rewards()), strict=True)]),
            advantages=nested,
            settings=GRPO,
        )
        assert verdict.status == "correct", verdict
