"""Verdicts by definition on recorded updates whose script has noted its rewards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings import Made, Model, events, generated, lines, spread, write
from scenarios import GROUP, LENGTHS, constant, row_mean, second, token_mean

from gates.model import Array
from gates.xray.picture import Picture, read
from gates.xray.verdict import Verdict

GROUPS = [0, 0, 0, 0, 1, 1, 1, 1]
TRL = {"scale": "group", "ddof": 1, "eps": 1e-4, "eps_mode": "add", "baseline": "mean"}
GRPO = {"algorithm": "grpo", "epsilon_low": 0.2, "epsilon_high": 0.2, **TRL}


def rewards(seed: int = 3) -> Array:
    """Rewards of two groups of four."""
    return np.random.default_rng(seed).normal(size=8)


def scores(values: Array, *, ddof: int = 1, eps: float = 1e-4, scaled: bool = True) -> Array:
    """Advantages within groups."""
    table = values.reshape(2, GROUP)
    centred = table - table.mean(axis=1, keepdims=True)
    return np.asarray((centred / (table.std(axis=1, ddof=ddof, keepdims=True) + eps) if scaled else centred).ravel())


def judged(folder: Path, *updates: Made, **note: Any) -> Verdict:
    """Record updates with one note before the first, and return the verdict on the loss of the last."""
    for made in updates:
        write(folder / "process-1", made)
    said = {"event": "note", "update": 0, **{name: _plain(value) for name, value in note.items()}}
    events(folder / "process-1", generated(), said, updates=len(updates))
    shown: Picture = read(folder).updates[-1]
    return next(each for each in shown.verdicts if each.quantity.startswith("policy_loss"))


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def made(advantages: Array, weigh: Any = row_mean, **changes: Any) -> Made:
    """An update of eight rows with these advantages."""
    rows = lines(LENGTHS, GROUP)
    return Made(Model.drawn(), rows, spread(rows, weigh(rows, advantages)), **changes)


def noted(settings: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """The note of a script: rewards and groups, and settings where some are said."""
    return {"rewards": rewards(), "groups": GROUPS, **({"settings": settings} if settings else {}), **more}


def twice(**changes: Any) -> tuple[Made, Made]:
    """Two updates of one rollout."""
    return second(lines(LENGTHS, GROUP), scores(rewards()), **changes)


class TestRight:
    """A loss that its definition gives."""

    @pytest.mark.parametrize("said", [True, False])
    @pytest.mark.parametrize(
        ("weigh", "scaled", "settings", "words"),
        [
            (row_mean, True, GRPO, "mean over rows of each row's token mean"),
            (token_mean, True, {**GRPO, "algorithm": "dapo", "dapo_denominator": "global"}, "token mean over the step"),
            (
                constant,
                False,
                {"algorithm": "dr_grpo", "max_length": 12, "scale": "none", "baseline": "mean"},
                "L_max 12",
            ),
        ],
        ids=["grpo", "dapo", "dr_grpo"],
    )
    def test_an_average(
        self, weigh: Any, scaled: bool, settings: dict[str, Any], words: str, said: bool, tmp_path: Path
    ) -> None:
        """Its settings are confirmed, or identified where nothing is said."""
        update = made(scores(rewards(), scaled=scaled), weigh)
        verdict = judged(tmp_path, update, **noted(settings if said else None))
        assert verdict.status == "correct", verdict
        assert (words in verdict.computes) is not said
        assert ("advantages: " in verdict.computes) is not said

    @pytest.mark.parametrize("said", [True, False])
    @pytest.mark.parametrize(
        ("changes", "more"),
        [
            ({"bounds": (0.8, 1.2)}, {}),
            ({"bounds": (0.8, 1.2), "beta": 0.04}, {"beta": 0.04, "kl_estimator": "k3", "kl_ratio": "none"}),
        ],
        ids=["clip", "clip and KL"],
    )
    def test_a_second_update(self, changes: dict[str, Any], more: dict[str, Any], said: bool, tmp_path: Path) -> None:
        """Ratio, clip and KL act."""
        verdict = judged(tmp_path, *twice(**changes), **noted({**GRPO, **more} if said else None))
        assert verdict.status == "correct", verdict
        if not said:
            assert "token ratio" in verdict.computes
            assert ("KL by k3 with β 0.04" in verdict.computes) == ("beta" in changes)

    def test_noted_advantages(self, tmp_path: Path) -> None:
        verdict = judged(tmp_path, made(scores(rewards())), advantages=scores(rewards()), settings=GRPO)
        assert verdict.status == "correct"

    def test_a_clip_of_the_norm_is_no_difference(self, tmp_path: Path) -> None:
        """The factor of the clip is divided out."""
        clipped = made(scores(rewards()), factor=0.25 / (1.0 + 1e-6), document={"clip": {"norm": 1.0, "limit": 0.25}})
        assert judged(tmp_path, clipped, **noted(GRPO)).status == "correct"

    def test_a_precision_that_no_textbook_has_is_said(self, tmp_path: Path) -> None:
        verdict = judged(tmp_path, made(scores(rewards())), **noted(GRPO))
        assert "within its measured error" in verdict.because

    def test_another_average_that_gives_the_same_is_said(self, tmp_path: Path) -> None:
        rows = lines([6] * 8, GROUP)
        update = Made(Model.drawn(), rows, spread(rows, row_mean(rows, scores(rewards()))))
        verdict = judged(tmp_path, update, **noted(GRPO))
        assert (verdict.status, "token mean" in verdict.sentence) == ("correct", True)

    def test_rows_of_equal_length_do_not_tell_averages_apart(self, tmp_path: Path) -> None:
        rows = lines([6] * 8, GROUP)
        update = Made(Model.drawn(), rows, spread(rows, row_mean(rows, scores(rewards()))))
        verdict = judged(tmp_path, update, **noted())
        assert (verdict.status, "several definitions fit" in verdict.sentence) == ("cannot tell", True)


class TestPenalty:
    """A KL whose estimator or weight is not said."""

    def test_an_estimate_that_the_ratio_weighs(self, tmp_path: Path) -> None:
        """TRL's KL: r·k3, whose gradient is that of k2 while the ratio is 1."""
        start = Model.drawn()
        model = start.moved(np.random.default_rng(2).normal(0.0, 0.03, start.flat.shape))
        rows = lines(LENGTHS, GROUP)
        coefficients = spread(rows, row_mean(rows, scores(rewards())))
        for line, values in zip(rows, coefficients, strict=True):
            inside = slice(len(line.prompt), len(line.prompt) + line.length)
            apart = (model.log_probs(line.ids) - start.log_probs(line.ids))[inside]
            values[inside] += 0.05 * apart / line.length / len(rows)
        scored = [({"by": "another model", "model": "Softmax", "update": 0}, start)]
        verdict = judged(tmp_path, Made(model, rows, coefficients, scored=scored), **noted())
        assert (verdict.status, "k3 times the ratio of the token or k2" in verdict.computes) == ("correct", True)


class TestOther:
    """Another choice than the one that is noted."""

    def test_ddof(self, tmp_path: Path) -> None:
        verdict = judged(tmp_path, made(scores(rewards(), ddof=0)), **noted(GRPO))
        assert (verdict.status, verdict.remedy) == ("differs", "note `ddof` '0' if it is meant")
        assert "with ddof 0" in verdict.computes

    def test_average(self, tmp_path: Path) -> None:
        verdict = judged(tmp_path, made(scores(rewards()), token_mean), **noted(GRPO))
        assert verdict.status == "differs"
        assert "`aggregation` 'token-mean'" in verdict.remedy

    @pytest.mark.parametrize(
        ("changes", "words"),
        [({"ratio": "none"}, "no ratio"), ({"ratio": "sequence"}, "row's mean ratio"), ({"beta": 0.04}, "KL by k3")],
    )
    def test_second_update(self, changes: dict[str, Any], words: str, tmp_path: Path) -> None:
        verdict = judged(tmp_path, *twice(**{"bounds": (0.8, 1.2), **changes}), **noted(GRPO))
        assert (verdict.status, words in verdict.computes) == ("differs", True), verdict


class TestMistake:
    """What nobody means."""

    @pytest.mark.parametrize("settings", [GRPO, None], ids=["said", "identified"])
    @pytest.mark.parametrize(
        ("update", "words"),
        [
            (lambda: made(scores(np.roll(rewards(), -1))), "rewards of the next row"),
            (lambda: made(-scores(rewards())), "the loss with the wrong sign"),
            (lambda: masked(prompt=True), "the prompt trains too"),
            (lambda: masked(closing=False), "the token that closes each completion is left out"),
        ],
        ids=["rewards", "sign", "prompt", "EOS"],
    )
    def test_a_mistake_has_its_name(
        self, update: Any, words: str, settings: dict[str, Any] | None, tmp_path: Path
    ) -> None:
        verdict = judged(tmp_path, update(), **noted(settings))
        assert (verdict.status, words in verdict.computes) == ("wrong", True), verdict

    def test_the_sign_of_a_kl(self, tmp_path: Path) -> None:
        settings = {**GRPO, "beta": 0.04, "kl_estimator": "k3", "kl_ratio": "none"}
        verdict = judged(tmp_path, *twice(bounds=(0.8, 1.2), beta=-0.04), **noted(settings))
        assert (verdict.status, verdict.computes) == ("wrong", "the KL with the wrong sign")


def masked(*, prompt: bool = False, closing: bool = True) -> Made:
    """A row mean over the prompt too, or without the token that ends a completion."""
    rows = lines(LENGTHS, GROUP)
    coefficients = []
    for line, advantage in zip(rows, scores(rewards()), strict=True):
        trains = np.array([0.0] * len(line.prompt) + [1.0] * line.length + [0.0] * line.padding)
        if prompt:
            trains[1 : len(line.prompt)] = 1.0
        if not closing:
            trains[len(line.prompt) + line.length - 1] = 0.0
        coefficients.append(-advantage / len(rows) * trains / trains.sum())
    return Made(Model.drawn(), rows, coefficients)


class TestCannotTell:
    """What the numbers do not decide, with what would."""

    def test_a_common_factor(self, tmp_path: Path) -> None:
        verdict = judged(tmp_path, made(2.0 * scores(rewards())), **noted(GRPO))
        assert (verdict.status, "a constant factor of 2" in verdict.sentence) == ("cannot tell", True)
        assert "accumulation" in verdict.remedy

    def test_truncated_rows_or_negative_ones(self, tmp_path: Path) -> None:
        """Where they are the same rows, both formulas are given: one is meant by some, the other by nobody."""
        advantages = scores(rewards(), scaled=False)
        rows = lines([12 if advantage < 0 else 6 for advantage in advantages], GROUP)
        for line, advantage in zip(rows, advantages, strict=True):
            line.completion[-1] = 2 if advantage < 0 else line.completion[-1]  # the limit ends it, and no EOS
        update = Made(Model.drawn(), rows, spread(rows, constant(rows, advantages.clip(min=0.0))))
        settings = {"algorithm": "dr_grpo", "max_length": 12, "scale": "none", "baseline": "mean"}
        verdict = judged(tmp_path, update, **noted(settings))
        assert verdict.status == "differs", verdict
        assert "the sampler's limit ended" in verdict.computes
        assert "rows with A < 0 left out" in verdict.computes

    @pytest.mark.parametrize(
        ("note", "remedy"),
        [
            ({"rewards": [1.0, 0.0], "groups": [0, 0]}, "note `ids`"),
            ({"rewards": [1.0] * 8, "groups": [0, 1] * 4}, "note `ids`"),
            ({"rewards": [1.0] * 8, "groups": GROUPS}, "record an update whose rewards differ"),
            ({"settings": {"algoritm": "grpo"}}, "correct the note's settings"),
            ({"settings": {"algorithm": "dr_grpo", "beta": "much"}}, "correct the note's settings"),
        ],
        ids=["count", "order", "equal rewards", "unknown setting", "invalid setting"],
    )
    def test_a_note_that_is_not_enough(self, note: dict[str, Any], remedy: str, tmp_path: Path) -> None:
        verdict = judged(tmp_path, made(scores(rewards())), **note)
        assert (verdict.status, remedy in verdict.remedy) == ("cannot tell", True), verdict

    @pytest.mark.parametrize(
        "note",
        [
            {"settings": {"algorithm": "nca_pair"}},
            {"settings": {"beta": 0.1}},
        ],
    )
    def test_a_loss_without_a_definition(self, note: dict[str, Any], tmp_path: Path) -> None:
        """A loss that the tables lack, and a note without rewards."""
        assert judged(tmp_path, made(scores(rewards())), **note).status == "unsupported"


class TestNothingKnown:
    """A loss that no definition gives."""

    def test_advantages_of_no_convention(self, tmp_path: Path) -> None:
        """The rows have a weight each, but not from these rewards."""
        values = scores(rewards()) + np.array([0.3, 0, 0, 0, 0, 0, 0, 0])
        said = judged(tmp_path / "said", made(values), **noted(GRPO))
        assert said.status == "wrong"
        assert "the loss as asked, with other advantages" in said.computes
        assert "in row 1 (asked" in said.computes
        assert judged(tmp_path / "not", made(values), **noted()).remedy == "note `advantages`, as the loss has them"

    @pytest.mark.parametrize(("settings", "status"), [(GRPO, "wrong"), (None, "cannot tell")])
    def test_coefficients_without_a_law(self, settings: dict[str, Any] | None, status: str, tmp_path: Path) -> None:
        rows, rng = lines(LENGTHS, GROUP), np.random.default_rng(4)
        coefficients = [each * rng.uniform(0.5, 1.5, len(each)) for each in spread(rows, scores(rewards()))]
        verdict = judged(tmp_path, Made(Model.drawn(), rows, coefficients), **noted(settings))
        assert (verdict.status, verdict.computes) == (status, "nothing that is known")


class TestRows:
    """Which noted row is which row of the update."""

    def test_by_ids(self, tmp_path: Path) -> None:
        """In another order, among rows of other updates."""
        update = made(scores(rewards()))
        order = np.random.default_rng(0).permutation(8)
        ids = [update.rows[k].completion for k in order] + [[5, 6, 7]]
        note = {"rewards": [*rewards()[order], 9.0], "groups": [*np.array(GROUPS)[order].tolist(), 2], "ids": ids}
        assert judged(tmp_path, update, **note).status == "correct"

    def test_groups_that_are_no_prompts(self, tmp_path: Path) -> None:
        """The rows are known by their ids, so it is not the order."""
        update = made(scores(rewards()))
        note = noted(ids=[row.completion for row in update.rows], groups=[0, 1] * 4)
        assert judged(tmp_path, update, **note).remedy == "note as `groups` the prompt of each row"

    def test_rewards_and_advantages(self, tmp_path: Path) -> None:
        """Noted advantages are judged against noted rewards as well."""
        narrow = {
            name: np.float32(values) for name, values in (("rewards", rewards()), ("advantages", scores(rewards())))
        }
        write(tmp_path / "process-1", made(scores(rewards())))
        said = {name: [float(value) for value in values] for name, values in narrow.items()}
        note = {"event": "note", "update": 0, **said, "groups": GROUPS, "settings": {**GRPO, "ddof": 0}}
        events(tmp_path / "process-1", generated(), note)
        verdicts = {each.quantity: each.status for each in read(tmp_path).updates[0].verdicts}
        assert verdicts == {"group_advantages": "differs", "policy_loss[grpo]": "correct"}

    def test_ids_of_other_rows(self, tmp_path: Path) -> None:
        verdict = judged(tmp_path, made(scores(rewards())), **noted(ids=[[3, 4]] * 8))
        assert (verdict.status, "not among" in verdict.sentence) == ("cannot tell", True)

    def test_groups_are_the_prompts_where_none_are_noted(self, tmp_path: Path) -> None:
        assert judged(tmp_path, made(scores(rewards())), rewards=rewards(), settings=GRPO).status == "correct"

    def test_equal_completions_with_different_rewards(self, tmp_path: Path) -> None:
        """Which reward is whose is not known, so another sum is no mistake."""
        rows = lines(LENGTHS, GROUP)
        rows[1] = rows[0]
        order = [1, 0, 2, 3, 4, 5, 6, 7]
        weights = row_mean(rows, scores(rewards()))
        coefficients = [each * np.arange(1, 1 + len(each)) for each in spread(rows, weights)]
        update = Made(Model.drawn(), rows, coefficients)
        ids = [rows[k].completion for k in order]
        verdict = judged(tmp_path, update, rewards=rewards()[order], groups=GROUPS, ids=ids, settings=GRPO)
        assert (verdict.status, "which is whose" in verdict.sentence) == ("cannot tell", True)

    def test_rows_that_are_scored_twice(self, tmp_path: Path) -> None:
        """A second pass over the rows, such as for an entropy, is not another row."""
        once = made(scores(rewards()))
        nothing = [np.zeros_like(each) for each in once.coefficients]
        again = Made(once.model, [*once.rows, *once.rows], [*once.coefficients, *nothing])
        assert judged(tmp_path, again, **noted(GRPO)).status == "correct"

    def test_notes_of_two_ranks(self, tmp_path: Path) -> None:
        """Each rank notes its own rows, with labels of its own."""
        whole = made(scores(rewards()))
        gradient = whole.gradient()
        for rank, rows in enumerate((slice(0, 4), slice(4, 8))):
            part = Made(whole.model, whole.rows[rows], whole.coefficients[rows])
            folder = write(tmp_path / f"process-{rank}", part, gradient=gradient, rank=rank, world_size=2)
            note = {"event": "note", "update": 0, "rewards": rewards()[rows].tolist(), "groups": [0] * 4}
            events(folder, note, rank=rank, world_size=2)
        (verdict,) = read(tmp_path).updates[0].verdicts
        assert (verdict.status, "row's token mean" in verdict.computes) == ("correct", True), verdict

    def test_no_note_no_verdict(self, tmp_path: Path) -> None:
        write(tmp_path / "process-1", made(scores(rewards())))
        events(tmp_path / "process-1", generated())
        assert read(tmp_path).updates[0].verdicts == ()
