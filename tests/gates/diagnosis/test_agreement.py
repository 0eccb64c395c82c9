"""A name explains every failing case; a size that is open, and edits that coincide on the calls, are no name."""

from __future__ import annotations

from edited import calls, edits_of, of_edits, of_oracle

from gates.diagnosis.agreement import explains
from gates.diagnosis.diagnose import diagnose
from gates.families.program import Edit, Inputs, Sample
from gates.families.programs import programs

WEIGHTS = programs()["importance_weights"]
ONE_SIDED = "typical-mis-token-one-sided-holes-float32"
TWO_SIDED = "typical-mis-token-two-sided-holes-float32"
LARGE = "c_max 5"
OF_D = "bounds of D, not of exp(D): "


def starting(given: list[Inputs], words: str) -> tuple[Edit]:
    """Return the first edit whose sentence starts with these words."""
    edits = edits_of(WEIGHTS, given)
    return (next(edit for sentence, edit in edits.items() if sentence.startswith(words)),)


def computed(case: str, words: str) -> list[Sample]:
    """Return what an edit gives for the designed calls of a case."""
    given = calls(WEIGHTS, case)
    return of_edits(WEIGHTS, given, starting(given, words))


class TestExplains:
    """Whether the name of one case explains another."""

    def test_a_size_explains_another_case_with_this_size(self) -> None:
        named = diagnose(WEIGHTS, computed(ONE_SIDED, LARGE))
        assert named.words.startswith(LARGE)
        assert explains(WEIGHTS, named, computed(TWO_SIDED, LARGE))

    def test_a_size_does_not_explain_what_another_edit_gives(self) -> None:
        named = diagnose(WEIGHTS, computed(ONE_SIDED, LARGE))
        assert not explains(WEIGHTS, named, computed(TWO_SIDED, OF_D))

    def test_an_edit_explains_another_case_that_has_other_words_for_it(self) -> None:
        named = diagnose(WEIGHTS, computed(ONE_SIDED, OF_D))
        assert named.words == f"{OF_D}up to c_max"
        assert explains(WEIGHTS, named, computed(TWO_SIDED, f"{OF_D}from c_min"))

    def test_a_constant_explains_no_other_case(self) -> None:
        given = calls(WEIGHTS, TWO_SIDED)
        shifted = [
            Sample(sample.inputs, {name: value + 0.25 for name, value in sample.got.items()})
            for sample in of_oracle(WEIGHTS, given)
        ]
        named = diagnose(WEIGHTS, shifted)
        assert (named.kind, explains(WEIGHTS, named, shifted)) == ("constant", False)


def test_a_size_between_usual_ones_has_no_name() -> None:
    """A bound of 4.6 keeps most ratios that one of 5 keeps."""
    samples = of_edits(WEIGHTS, calls(WEIGHTS, TWO_SIDED), (Edit("c_max 4.6", {"high": 4.6}),))
    assert diagnose(WEIGHTS, samples).kind == "nothing known"


def test_edits_that_coincide_on_the_calls_are_both_said() -> None:
    """In groups of two the mean of the other members is the reward of the next member."""
    program = programs()["group_advantages"]
    given = [{**call, "group_size": 2} for call in calls(program, "none-mean-float32") if len(call["rewards"]) % 2 == 0]
    edits = edits_of(program, given)
    chosen = next(edit for sentence, edit in edits.items() if "the reward of the next member" in sentence)
    named = diagnose(program, of_edits(program, given, (chosen,)))
    assert named.kind == "ambiguous"
    assert "the mean of the other members" in named.words
