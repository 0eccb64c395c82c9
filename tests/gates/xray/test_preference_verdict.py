"""Verdicts on preference losses and supervised training, as coefficients that papers' formulas give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings import Line, Made, Model, events, lines, spread, write

from gates.model import Array
from gates.xray.picture import read
from gates.xray.verdict import Verdict
from gates.xray.verdict.preference.settings import SETTINGS

ROOT = Path(__file__).parents[3]
LENGTHS = (7, 5, 9, 6, 4, 8)  # chosen and rejected in turn
BETA = 0.4
DPO = {"algorithm": "dpo", "beta": BETA}
CHOSEN = [True, False] * 3
PAIRS = [0, 0, 1, 1, 2, 2]
Weigh = Callable[
    [Array, Array, Array], Array
]  # coefficients of a row's tokens, given log-ratios, log-probs and lengths


def rows() -> list[Line]:
    """Three pairs, each of one prompt."""
    return lines(LENGTHS, 2, prompts=(5, 4, 3))


def models(step: float = 0.06) -> tuple[Model, Model]:
    """The policy and its reference."""
    start = Model.drawn()
    return start.moved(np.random.default_rng(9).normal(0.0, step, start.flat.shape)), start


def sums(model: Model) -> Array:
    """The log-prob of each completion."""
    return np.array(
        [model.log_probs(line.ids)[len(line.prompt) : len(line.prompt) + line.length].sum() for line in rows()]
    )


def sigmoid(x: Array) -> Array:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def log_ratios(*, reference: bool = True) -> Array:
    policy, start = models()
    return sums(policy) - (sums(start) if reference else 0.0)


def of_pairs(slopes: Array) -> Array:
    """The weight of each row, given the slope of each pair's loss by its margin."""
    return np.asarray(np.stack([slopes, -slopes], axis=1).ravel())


def dpo(beta: float = BETA, *, reference: bool = True, swapped: Sequence[int] = ()) -> Array:
    """−log σ(β(lr_c − lr_r)), mean over pairs."""
    h = log_ratios(reference=reference)
    h = h[0::2] - h[1::2]
    signs = np.array([-1.0 if pair in swapped else 1.0 for pair in range(3)])
    return of_pairs(-beta * signs * sigmoid(-beta * signs * h) / 3.0)


def averaged(beta: float = BETA) -> Array:
    """DPO by means over tokens."""
    lengths = np.array(LENGTHS, float)
    h = log_ratios() / lengths
    return of_pairs(-beta * sigmoid(-beta * (h[0::2] - h[1::2])) / 3.0) / lengths


def update(
    weights: Array,
    *,
    likelihood: float = 0.0,
    prompt: bool = False,
    closing: bool = True,
    scored: bool = True,
    labels: bool = True,
) -> Made:
    """An update whose rows have these weights, and whose chosen ones a likelihood."""
    policy, start = models()
    listed = rows()
    for line in listed:
        line.seen = False
        if labels:
            line.labels = [-100] * len(line.prompt) + line.completion + [-100] * line.padding
    coefficients = spread(listed, list(weights))
    count = sum(LENGTHS[0::2])
    for index, (line, row) in enumerate(zip(listed, coefficients, strict=True)):
        if index % 2 == 0:
            row[len(line.prompt) : len(line.prompt) + line.length] -= likelihood / count
        if prompt:
            row[1 : len(line.prompt)] = weights[index]
        if not closing:
            row[len(line.prompt) + line.length - 1] = 0.0
    by = [({"by": "another model", "model": "Softmax", "update": 0}, start)] if scored else []
    return Made(policy, listed, coefficients, scored=by)


def judged(folder: Path, made: Made, **note: Any) -> Verdict:
    """Return the verdict on an update with a note before it."""
    write(folder / "process-1", made)
    plain = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in note.items()}
    events(folder / "process-1", {"event": "note", "update": 0, **plain})
    (verdict,) = read(folder).updates[0].verdicts
    return verdict


def noted(settings: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"chosen": CHOSEN, "groups": PAIRS, "settings": settings, **more}


class TestPairs:
    """Losses of a chosen and a rejected completion."""

    @pytest.mark.parametrize("note", [noted(DPO), {"settings": DPO}, noted({"loss": "dpo", "beta": BETA})])
    def test_dpo(self, note: dict[str, Any], tmp_path: Path) -> None:
        """With its parts noted; with nothing but settings, where the coefficients say which row is chosen."""
        verdict = judged(tmp_path, update(dpo()), **note)
        assert (verdict.quantity, verdict.status) == ("preference_loss[dpo]", "correct"), verdict
        assert ("read off the coefficients" in verdict.sentence) == ("chosen" not in note)

    def test_a_beta_that_is_left_out_is_read_off(self, tmp_path: Path) -> None:
        verdict = judged(tmp_path, update(dpo()), **noted({"algorithm": "dpo"}))
        assert (verdict.status, verdict.computes) == ("correct", "β 0.4"), verdict

    def test_rewards_say_which_is_chosen(self, tmp_path: Path) -> None:
        scores = [1.0, 0.0, 3.0, -1.0, 0.5, 0.2]
        assert judged(tmp_path / "right", update(dpo()), rewards=scores, groups=PAIRS, settings=DPO).status == "correct"
        verdict = judged(tmp_path / "wrong", update(dpo(swapped=(1,))), rewards=scores, groups=PAIRS, settings=DPO)
        assert (verdict.status, verdict.computes) == (
            "wrong",
            "chosen and rejected swapped in the pair of rows 3 and 4",
        )

    def test_ids_in_another_order(self, tmp_path: Path) -> None:
        made = update(dpo(), labels=False)
        order = [3, 0, 5, 2, 4, 1]
        note = {"ids": [made.rows[k].completion for k in order], "chosen": [CHOSEN[k] for k in order]}
        verdict = judged(tmp_path, made, **note, groups=[PAIRS[k] for k in order], settings=DPO)
        assert verdict.status == "correct", verdict

    @pytest.mark.parametrize(
        ("name", "constants", "weights"),
        [
            ("hinge", {}, lambda h, n: of_pairs(np.where(BETA * h < 1.0, -BETA, 0.0) / 3.0)),
            ("ipo", {"lengths": "sum"}, lambda h, n: of_pairs(2.0 * (h - 0.5 / BETA) / 3.0)),
        ],
    )
    def test_other_forms(self, name: str, constants: dict[str, Any], weights: Any, tmp_path: Path) -> None:
        lr = log_ratios()
        made = update(weights(lr[0::2] - lr[1::2], np.array(LENGTHS)))
        verdict = judged(tmp_path, made, **noted({"algorithm": name, "beta": BETA, **constants}))
        assert verdict.status == "correct", verdict

    def test_simpo_and_cpo(self, tmp_path: Path) -> None:
        """Means without a reference; sums without one, beside a likelihood."""
        n, lp = np.array(LENGTHS, float), sums(models()[0])
        mean = lp / n
        simpo = of_pairs(-2.0 * sigmoid(-(2.0 * (mean[0::2] - mean[1::2]) - 0.5)) / 3.0) / n
        settings = {"algorithm": "simpo", "beta": 2.0, "margin": 0.5}
        assert judged(tmp_path / "simpo", update(simpo, scored=False), **noted(settings)).status == "correct"
        cpo = dpo(0.1, reference=False)
        made = update(cpo, likelihood=1.0, scored=False)
        assert judged(tmp_path / "cpo", made, **noted({"algorithm": "cpo", "beta": 0.1})).status == "correct"

    @pytest.mark.parametrize(
        ("made", "words"),
        [
            (lambda: update(dpo(swapped=(0, 1, 2))), "chosen and rejected swapped"),
            (lambda: update(dpo(swapped=(2,))), "chosen and rejected swapped in the pair of rows 5 and 6"),
            (lambda: update(-dpo()), "the loss with the wrong sign"),
            (lambda: update(dpo(reference=False)), "the reference ignored"),
            (lambda: update(dpo(2.0 * BETA)), "β doubled"),
            (lambda: update(dpo(0.03)), "β 0.03 (asked: 0.4)"),
            (lambda: update(dpo(), closing=False), "cannot"),
        ],
        ids=["swapped", "one swapped", "sign", "no reference", "beta", "another beta", "nothing"],
    )
    def test_a_mistake_has_its_name(self, made: Any, words: str, tmp_path: Path) -> None:
        verdict = judged(tmp_path, made(), **noted(DPO))
        expected = words if words != "cannot" else "nothing that is known"
        assert (verdict.status, verdict.computes) == ("wrong", expected) or expected in verdict.computes, verdict

    def test_length_normalisation(self, tmp_path: Path) -> None:
        """Extra, where sums are asked; missing, where means are."""
        extra = judged(tmp_path / "extra", update(averaged()), **noted(DPO))
        assert (extra.status, extra.remedy) == ("differs", "note `lengths` 'mean' if it is meant"), extra
        missing = judged(tmp_path / "missing", update(dpo()), **noted({**DPO, "lengths": "mean"}))
        assert (missing.status, missing.remedy) == ("differs", "note `lengths` 'sum' if it is meant"), missing
        assert judged(tmp_path / "meant", update(averaged()), **noted({**DPO, "lengths": "mean"})).status == "correct"

    def test_another_loss(self, tmp_path: Path) -> None:
        n, lp = np.array(LENGTHS, float), sums(models()[0])
        mean = lp / n
        simpo = of_pairs(-BETA * sigmoid(-(BETA * (mean[0::2] - mean[1::2]) - 0.5)) / 3.0) / n
        verdict = judged(tmp_path, update(simpo), **noted({"algorithm": "cpo", "beta": BETA, "nll": 0.0}))
        assert (verdict.status, "the loss of simpo with margin 0.5" in verdict.computes) == ("differs", True), verdict

    def test_a_likelihood_beside(self, tmp_path: Path) -> None:
        verdict = judged(tmp_path / "added", update(dpo(), likelihood=0.3), **noted(DPO))
        assert (verdict.status, "with weight 0.3 (asked: 0)" in verdict.computes) == ("differs", True), verdict
        meant = judged(tmp_path / "meant", update(dpo(), likelihood=0.3), **noted({**DPO, "nll": 0.3}))
        assert meant.status == "correct", meant

    def test_a_prompt_that_trains(self, tmp_path: Path) -> None:
        """SimPO's mean over prompt and completion."""
        policy, _ = models()
        whole = np.array([np.nansum(policy.log_probs(line.ids)[: len(line.prompt) + line.length]) for line in rows()])
        n = np.array([len(line.prompt) + line.length - 1 for line in rows()], float)
        mean = whole / n
        weights = of_pairs(-2.0 * sigmoid(-(2.0 * (mean[0::2] - mean[1::2]) - 0.5)) / 3.0) / n
        settings = {"algorithm": "simpo", "beta": 2.0, "margin": 0.5}
        verdict = judged(tmp_path, update(weights, prompt=True, scored=False), **noted(settings))
        assert (verdict.status, "the prompt trains too" in verdict.computes) == ("wrong", True), verdict

    def test_a_likelihood_of_each_micro_batch(self, tmp_path: Path) -> None:
        """CPO's mean over the tokens of a pass, where each pass has a pair."""
        made = update(dpo(0.1, reference=False), scored=False)
        for line, row in zip(made.rows[0::2], made.coefficients[0::2], strict=True):
            row[len(line.prompt) : len(line.prompt) + line.length] -= 1.0 / line.length / 3.0
        verdict = judged(tmp_path, made, **noted({"algorithm": "cpo", "beta": 0.1}))
        assert (verdict.status, verdict.computes) == ("correct", "averaged in each micro-batch"), verdict


class TestCannotTell:
    """What the recording lacks is named."""

    def test_a_common_factor(self, tmp_path: Path) -> None:
        verdict = judged(tmp_path, update(2.0 * dpo()), **noted(DPO))
        assert (verdict.status, "factor of 2" in verdict.sentence) == ("cannot tell", True), verdict

    def test_a_reference_that_nobody_scored(self, tmp_path: Path) -> None:
        """The weights before the update are not the reference; its log-probs may be noted."""
        made = update(dpo(), scored=False)
        unknown = judged(tmp_path / "unknown", made, **noted(DPO))
        assert (unknown.status, "`reference_log_probs`" in unknown.remedy) == ("cannot tell", True), unknown
        start = models()[1]
        listed = [
            start.log_probs(line.ids)[len(line.prompt) : len(line.prompt) + line.length].tolist() for line in rows()
        ]
        known = judged(tmp_path / "known", made, **noted(DPO, reference_log_probs=listed))
        assert known.status == "correct", known

    @pytest.mark.parametrize(
        ("note", "remedy"),
        [
            (noted(DPO, groups=[0, 1, 2, 3, 4, 5]), "note `groups`"),
            (noted(DPO, chosen=[True] * 6), "note `chosen`"),
            (noted({"algorithm": "simpo", "beta": 2.0}), "correct the note's settings"),
        ],
    )
    def test_a_note_that_is_not_enough(self, note: dict[str, Any], remedy: str, tmp_path: Path) -> None:
        verdict = judged(tmp_path, update(dpo()), **note)
        assert (verdict.status, remedy in verdict.remedy) == ("cannot tell", True), verdict

    def test_where_completions_begin(self, tmp_path: Path) -> None:
        """Neither labels nor ids: a wrong number may be a right one of other slots, but what another loss gives is its."""
        slopes = np.array([0.1, 0.5, 0.9])
        verdict = judged(tmp_path / "wrong", update(of_pairs(slopes), labels=False), **noted(DPO))
        assert (verdict.status, "note `ids`" in verdict.remedy) == ("cannot tell", True), verdict
        verdict = judged(tmp_path / "means", update(averaged(), labels=False), **noted(DPO))
        assert (verdict.status, "`lengths` 'mean'" in verdict.remedy) == ("differs", True), verdict


KTO = {"algorithm": "kto", "beta": BETA, "desirable_weight": 1.0, "undesirable_weight": 1.3}


def kto(anchor: float, *, swapped: bool = False, weights: tuple[float, float] = (1.0, 1.3)) -> Array:
    """λ(1 − σ(±β(lr − z0))), mean over rows."""
    good = np.array(CHOSEN) ^ swapped
    sign = np.where(good, 1.0, -1.0)
    z = BETA * sign * (log_ratios() - anchor)
    return np.asarray(-np.where(good, *weights) * sign * BETA * sigmoid(z) * sigmoid(-z) / 6.0)


class TestUnpaired:
    """KTO, whose reference point z0 may be noted."""

    def said(self, **more: Any) -> dict[str, Any]:
        return {"desirable": CHOSEN, "settings": KTO, **more}

    def test_z0_as_noted(self, tmp_path: Path) -> None:
        verdict = judged(tmp_path / "right", update(kto(0.2)), **self.said(mismatched=[0.5, -0.1]))
        assert (verdict.quantity, verdict.status) == ("kto_loss", "correct"), verdict
        verdict = judged(tmp_path / "wrong", update(kto(0.0)), **self.said(mismatched=[0.5, -0.1]))
        assert (verdict.status, "no z0" in verdict.computes) == ("differs", True), verdict

    def test_z0_is_read_off(self, tmp_path: Path) -> None:
        verdict = judged(tmp_path, update(kto(0.37)), **self.said())
        assert (verdict.status, "z0 0.37 is read off" in verdict.sentence) == ("correct", True), verdict
        assert "note `mismatched`" in verdict.remedy

    @pytest.mark.parametrize(
        ("weights", "words"),
        [
            (lambda: kto(0.37, swapped=True), "desirable and undesirable swapped"),
            (lambda: kto(0.0, weights=(1.3, 1.0)), "λ_D and λ_U swapped"),
            (lambda: -kto(0.0), "the loss with the wrong sign"),
        ],
        ids=["labels", "weights", "sign"],
    )
    def test_a_mistake_has_its_name(self, weights: Any, words: str, tmp_path: Path) -> None:
        verdict = judged(tmp_path, update(weights()), **self.said())
        assert (verdict.status, words in verdict.computes) == ("wrong", True), verdict

    def test_other_weights(self, tmp_path: Path) -> None:
        verdict = judged(tmp_path, update(kto(0.0, weights=(1.0, 1.7))), **self.said())
        assert (verdict.status, "λ_D 1 and λ_U 1.7 (asked: 1 and 1.3)" in verdict.computes) == ("differs", True), (
            verdict
        )


class TestSupervised:
    """The likelihood of completions."""

    def made(self, divisors: Any, **changes: Any) -> Made:
        return update(-np.ones(6) / divisors, **changes)

    @pytest.mark.parametrize(
        ("divisors", "words"),
        [
            (float(sum(LENGTHS)), "the mean over tokens"),
            (6.0 * np.array(LENGTHS), "the mean over rows of each row's mean"),
        ],
        ids=["token-mean", "row-mean"],
    )
    def test_an_average_is_identified(self, divisors: Any, words: str, tmp_path: Path) -> None:
        verdict = judged(tmp_path, self.made(divisors, scored=False), settings={"algorithm": "sft"})
        assert (verdict.quantity, verdict.status) == ("supervised_loss", "correct"), verdict
        assert words in verdict.computes

    def test_another_average(self, tmp_path: Path) -> None:
        settings = {"algorithm": "sft", "aggregation": "row-mean"}
        verdict = judged(tmp_path, self.made(float(sum(LENGTHS))), settings=settings)
        assert (verdict.status, "`aggregation` 'token-mean'" in verdict.remedy) == ("differs", True), verdict

    def test_a_closing_token_that_does_not_train(self, tmp_path: Path) -> None:
        made = self.made(float(sum(LENGTHS) - 6), closing=False)
        verdict = judged(tmp_path, made, settings={"algorithm": "sft", "aggregation": "token-mean"})
        assert (verdict.status, "the token that closes" in verdict.computes) == ("wrong", True), verdict


class TestDocument:
    """docs/xray.md lists the settings."""

    @pytest.mark.parametrize("name", SETTINGS)
    def test_settings(self, name: str) -> None:
        setting = SETTINGS[name]
        value = " ".join(f"`{choice}`" for choice in setting.choices) or setting.kind
        assert f"| `{name}` | {value} | {setting.meaning} |" in (ROOT / "docs" / "xray.md").read_text(encoding="utf-8")
