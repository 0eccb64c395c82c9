"""A common factor is one that a program can have; a loss whose gradient fits is off by a factor or a constant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from edited import calls, of_oracle

from gates.diagnosis.diagnose import diagnose
from gates.diagnosis.named import Diagnosis
from gates.diagnosis.search import Candidate, values
from gates.families.program import Inputs, Sample
from gates.families.programs import programs
from gates.families.rows import Grid

LOSS = programs()["policy_loss"]
GRPO = "loss.grpo.matches-definition-ragged"
ALONE = replace(
    LOSS,
    outputs=("loss",),
    variable="",
    compute=lambda data, chosen, _: LOSS.compute(data, chosen, data.lift(data["policy"])),
)


def samples() -> list[Sample]:
    """Return what the oracle gives for the designed calls of GRPO."""
    return of_oracle(LOSS, calls(LOSS, GRPO))


def centred(sample: Sample) -> Inputs:
    """Return an on-policy call whose advantages sum to 0 but for rounding, as z-scores do."""
    policy, a = (np.asarray(sample.inputs[name]) for name in ("policy", "advantages"))
    return {**sample.inputs, "old": policy, "advantages": (a - a.mean()).astype(policy.dtype)}


def with_loss(of: Callable[[float], float], several: Sequence[Sample]) -> list[Sample]:
    """Return samples with changed losses."""
    return [Sample(s.inputs, {**s.got, "loss": np.asarray(of(float(s.got["loss"])))}) for s in several]


def of_factor(factor: Callable[[Inputs], float]) -> Diagnosis:
    """Diagnose loss and gradient times a factor."""
    times = [Sample(s.inputs, {name: factor(s.inputs) * x for name, x in s.got.items()}) for s in samples()]
    return diagnose(LOSS, times, pairs=False)


class TestRefusedFactors:
    """Names that a person would laugh at."""

    @pytest.mark.parametrize("loss", [0.4321, -7.7, 1e-3])
    def test_a_candidate_that_is_0_but_for_rounding_has_no_factor(self, loss: float) -> None:
        """One loss alone, of advantages that sum to 1e-7: any factor would fit."""
        sample = Sample(centred(samples()[0]), {"loss": np.asarray(loss)})
        found = diagnose(ALONE, [sample], pairs=False)
        assert (found.kind, found.words) == ("nothing known", "")

    @pytest.mark.parametrize("factor", [1.03e9, 2.5e8, 1234.5, 1.2345678, 4.321e-5])
    def test_a_factor_that_no_program_has(self, factor: float) -> None:
        assert of_factor(lambda _: factor).kind == "nothing known"

    def test_one_number_alone_is_not_named_by_a_short_decimal(self) -> None:
        """With thousands of candidates, some short decimal fits any loss."""
        (one,) = with_loss(lambda x: 0.37 * x, [of_oracle(ALONE, calls(LOSS, GRPO)[:1])[0]])
        assert diagnose(ALONE, [one], pairs=False).kind == "nothing known"

    def test_one_number_alone_is_no_edit_times_a_factor(self) -> None:
        """An unclipped loss times 3 is one of thousands of names."""
        (edit,) = [edit for edit in LOSS.edits(LOSS.asked(calls(LOSS, GRPO)[0])) if edit.words == "r·A without a clip"]
        (call,) = calls(LOSS, GRPO)[:1]
        loss = values(ALONE, call, Candidate((edit,)).choices(LOSS.asked(call)))["loss"]
        found = diagnose(ALONE, [Sample(call, {"loss": 10.0 * loss})], pairs=False)
        assert found.kind == "nothing known"

    def test_loss_and_gradient_agree_on_the_factor(self) -> None:
        """The gradient doubled, the loss tripled."""
        mixed = [
            Sample(s.inputs, {"loss": 3.0 * s.got["loss"], "gradient": 2.0 * s.got["gradient"]}) for s in samples()
        ]
        assert diagnose(LOSS, mixed, pairs=False).kind == "nothing known"


class TestNamedFactors:
    """Constants and counts of a call."""

    @pytest.mark.parametrize("factor", [-2.0, 0.5, 0.125, 1000.0, 1e-3, 0.37])
    def test_a_constant(self, factor: float) -> None:
        found = of_factor(lambda _: factor)
        assert (found.kind, found.words) == ("scaled", f"what is asked, times {factor:g}")

    @pytest.mark.parametrize(
        ("words", "of"),
        [
            ("rows", lambda grid, _: float(len(grid.counts))),
            ("tokens / rows", lambda grid, _: grid.counts.sum() / len(grid.counts)),
            ("1 / ε_low", lambda _, inputs: 1.0 / inputs["epsilon_low"]),
        ],
    )
    def test_a_count_or_a_setting(self, words: str, of: Callable[[Grid, Inputs], float]) -> None:
        """The factor differs from call to call."""
        found = of_factor(lambda inputs: of(Grid.of(inputs, "policy"), inputs))
        expected = "5" if words == "1 / ε_low" else words
        assert found.words.endswith(f"times {expected}") or found.kind in {"mistake", "convention"}, found


class TestLossAlone:
    """The gradient fits."""

    def test_off_by_a_constant(self) -> None:
        found = diagnose(LOSS, with_loss(lambda x: x + 0.0625, samples()))
        assert (found.kind, found.words) == ("constant", "the gradient fits, the loss is off by a constant: +0.0625")

    def test_off_by_a_factor(self) -> None:
        found = diagnose(LOSS, with_loss(lambda x: 0.25 * x, samples()))
        assert (found.kind, found.words) == ("constant", "the gradient fits, the loss is off by a factor: times 0.25")

    def test_off_by_another_amount_each_call(self) -> None:
        """No name: the amounts have nothing in common."""
        rng = np.random.default_rng(3)
        found = diagnose(LOSS, with_loss(lambda x: x + rng.normal(), samples()), pairs=False)
        assert (found.kind, found.where) == ("nothing known", "only the loss differs: the gradient fits")

    def test_a_loss_in_half_precision_is_no_constant(self) -> None:
        found = diagnose(LOSS, with_loss(lambda x: float(np.float16(x)), samples()[:1]), pairs=False)
        assert found.kind == "lower precision"
