"""What no edit describes gets no name, but the place where it differs; a factor or half precision is named as such."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from edited import calls, changed, edits_of, of_edits, of_oracle

from gates.diagnosis import search
from gates.diagnosis.diagnose import diagnose
from gates.families.program import Inputs, Sample
from gates.families.programs import programs
from gates.model import Array
from gates_reference.oracle.advantages import group_advantages

PROGRAMS = programs()
LOSS, DPO = "loss.grpo.matches-definition-ragged", "preference.dpo.matches-definition-plain-ordinary-float32"
MOST = 800  # evaluations of plain values: three for each edit
IN_HALF = "cannot be told from half-precision arithmetic of what is asked"
Place = Callable[[Inputs], Any]


def above_the_mean(inputs: Inputs) -> Array:
    groups = np.asarray(inputs["rewards"], float).reshape(-1, inputs["group_size"])
    return np.asarray(groups > groups.mean(axis=1, keepdims=True)).reshape(-1)


def likeliest(inputs: Inputs) -> Array:
    return np.asarray(np.asarray(inputs["logits"]).argmax(axis=-1) == inputs["ids"])


def given_ids(inputs: Inputs) -> Array:
    logits, ids = np.asarray(inputs["logits"]), np.asarray(inputs["ids"])
    each = ids.reshape(*logits.shape[:-1], -1)
    return np.asarray((each[..., None] == np.arange(logits.shape[-1])).any(axis=-2))


def above_the_bound(inputs: Inputs) -> Array:
    moved = np.asarray(inputs["old"], float) - inputs["sampling"]
    return np.asarray(inputs["mask"] & (moved > np.log(2.0)))


def rows(*kept: int) -> Place:
    return lambda inputs: np.isin(np.arange(len(inputs["policy"])) % 2, kept)[:, None]


@pytest.mark.parametrize(
    ("op", "name", "output", "place", "where"),
    [
        (
            "group_advantages",
            "group-mean-add-ddof1-float32",
            "advantages",
            above_the_mean,
            "where R is above the mean of its group",
        ),
        ("gae", "tokens-holes-float32", "advantages", lambda x: x["terminal"], "where an episode ends"),
        (
            "token_kl",
            "kl.k3.matches-definition-right-none-float32",
            "kl",
            lambda x: x["mask"] & (x["reference"] > x["policy"]),
            "where the reference is above the policy",
        ),
        (
            "selective_log_softmax",
            "logprobs.selective.matches-definition-normal-float32",
            "logprobs",
            likeliest,
            "at the likeliest id of a position",
        ),
        (
            "selective_log_softmax",
            "logprobs.entropy.matches-definition-some-ignored-float32",
            "entropy",
            lambda x: np.asarray(x["ids"]) == x["ignore_index"],
            "where an id is ignored",
        ),
        ("selective_log_softmax_backward", "normal-float32", "gradient", given_ids, "at the given ids"),
        (
            "importance_weights",
            "typical-tis-token-two-sided-holes-float32",
            "weights",
            above_the_bound,
            "where the ratio is above the upper bound",
        ),
        ("policy_loss", LOSS, "gradient", lambda x: np.asarray(x["advantages"])[:, None] < 0.0, "where A < 0"),
        ("preference_loss", DPO, "gradient", rows(0), "in chosen completions"),
        ("preference_loss", DPO, "gradient", rows(1), "in rejected completions"),
        (
            "kto_loss",
            "ahead-ordinary-float32",
            "gradient",
            lambda x: ~np.asarray(x["desirable"])[:, None],
            "in undesirable rows",
        ),
        (
            "sample_tokens",
            "none-hf-float32",
            "tokens",
            lambda x: np.asarray(x["uniforms"]) < 0.5,
            "where u is below 1/2",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_place(op: str, name: str, output: str, place: Place, where: str) -> None:
    """The elements in which the output was changed."""
    samples = changed(of_oracle(PROGRAMS[op], calls(PROGRAMS[op], name)), output, place)
    found = diagnose(PROGRAMS[op], samples)
    assert (found.kind, found.words, found.where) == ("nothing known", "", f"{output} differs only {where}")


def test_another_function() -> None:
    """Ranks of a group, less their mean, are none of the edits."""
    program = PROGRAMS["group_advantages"]

    def ranks(*, rewards: Array, group_size: int, **_: Any) -> Array:
        order = rewards.reshape(-1, group_size).argsort(axis=1).argsort(axis=1)
        return np.asarray(order / (group_size - 1) - 0.5).reshape(-1)

    samples = of_oracle(program, calls(program, "group-mean-add-ddof1-float32"), ranks)
    assert diagnose(program, samples).kind == "nothing known"


def test_one_token_of_many() -> None:
    """A kept set that differs in a single token of one call is not what is asked."""
    program = PROGRAMS["filtered_logprobs"]
    samples = of_oracle(program, calls(program, "top-p-hf-float32"))
    found = samples[3].got["logprobs"]
    found[0, np.argmax(np.where(np.isfinite(found[0]), -found[0], -np.inf))] = -np.inf
    diagnosis = diagnose(program, samples)
    assert (diagnosis.kind, diagnosis.words) == ("nothing known", "")


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_number_that_is_not_finite(number: float) -> None:
    """Nothing is named where the subject returned NaN or an infinity."""
    program = PROGRAMS["preference_loss"]
    samples = of_oracle(program, calls(program, "preference.orpo.matches-definition-plain-ordinary-float32"))
    found = diagnose(program, [Sample(s.inputs, {**s.got, "loss": np.asarray(number)}) for s in samples])
    assert (found.kind, found.words) == ("nothing known", "")


@pytest.mark.parametrize("pairs", [False, pytest.param(True, marks=pytest.mark.long)])
def test_one_statistic_that_nobody_knows(monkeypatch: pytest.MonkeyPatch, *, pairs: bool) -> None:
    """One wrong statistic among right ones has no name, and costs a second: no common factor fits edits of the others."""
    evaluated: list[Any] = []
    values = search.values
    monkeypatch.setattr(search, "values", lambda *arguments: evaluated.append(arguments) or values(*arguments))
    program = PROGRAMS["ratio_statistics"]
    samples = of_oracle(program, calls(program, "sixteen-rows-holes-typical-float32"))
    for index, sample in enumerate(samples):
        sample.got["k3"][...] *= 1.3 + 0.1 * index
    assert diagnose(program, samples, pairs=pairs).kind == "nothing known"
    assert pairs or len(evaluated) < MOST


@pytest.mark.parametrize(
    ("op", "name", "factor"),
    [
        ("policy_loss", "loss.gspo.matches-definition-ragged", 0.37),
        ("filtered_logprobs", "top-k-hf-float32", 1.0 / np.log(2.0)),  # logarithms of base 2
    ],
)
def test_a_factor_is_named(op: str, name: str, factor: float) -> None:
    """One factor on everything; what is removed stays removed."""
    samples = of_oracle(PROGRAMS[op], calls(PROGRAMS[op], name))
    scaled = [Sample(s.inputs, {output: factor * x for output, x in s.got.items()}) for s in samples]
    found = diagnose(PROGRAMS[op], scaled)
    assert (found.kind, found.words) == ("scaled", f"what is asked, times {factor:.6g}")


@pytest.mark.parametrize(
    ("name", "dtype", "named"),
    [
        (LOSS, np.float16, ("lower precision", IN_HALF)),
        ("loss.grpo.matches-definition-float64", np.float16, ("lower precision", IN_HALF)),
        ("loss.grpo.matches-definition-float64", np.float32, ("as asked", "as asked (computes in float32)")),
    ],
)
def test_lower_precision(name: str, dtype: Any, named: tuple[str, str]) -> None:
    """The definition in half precision may be another one; in float32, whatever the data are, it is what is asked."""
    program = PROGRAMS["policy_loss"]
    samples = of_oracle(program, calls(program, name))
    rough = [Sample(s.inputs, {x: y.astype(dtype).astype(np.float64) for x, y in s.got.items()}) for s in samples]
    found = diagnose(program, rough)
    assert (found.kind, found.words) == named


def test_a_gradient_alone_is_named() -> None:
    """The loss is right, its gradient is another one's."""
    program = PROGRAMS["policy_loss"]
    given = calls(program, LOSS)
    edit = edits_of(program, given)["a clip that lets the gradient through"]
    right, other = of_oracle(program, given), of_edits(program, given, (edit,))
    mixed = [Sample(a.inputs, {**a.got, "gradient": b.got["gradient"]}) for a, b in zip(right, other, strict=True)]
    assert diagnose(program, mixed).words.endswith(("r·A without a clip", "a clip that never acts: r·A", edit.sentence))


class TestUnscored:
    """Rewards that are NaN are left out, counted as 0, or spread over their group."""

    program = PROGRAMS["group_advantages"]

    def inputs(self) -> list[Inputs]:
        given = calls(self.program, "group-mean-add-ddof1-float32")
        holed = np.asarray(given[0]["rewards"]).copy()
        holed[1] = np.nan
        return list(self.program.inputs({**given[0], "rewards": holed}, np.random.default_rng(3)))

    def test_left_out(self) -> None:
        """As the definition does."""
        assert diagnose(self.program, of_oracle(self.program, self.inputs())).kind == "as asked"

    def test_edits(self) -> None:
        """Each has its name."""

        def as_zero(*, rewards: Array, **settings: Any) -> Array:
            return np.asarray(group_advantages(rewards=np.nan_to_num(rewards), **settings))

        def spread(*, rewards: Array, group_size: int, **settings: Any) -> Array:
            found = group_advantages(rewards=np.nan_to_num(rewards), group_size=group_size, **settings)
            holed = np.isnan(rewards).reshape(-1, group_size).any(axis=1).repeat(group_size)
            return np.where(holed, np.nan, found)

        found = diagnose(self.program, of_oracle(self.program, self.inputs(), as_zero))
        assert found.words == "unscored rewards counted as 0"
        found = diagnose(self.program, of_oracle(self.program, self.inputs(), spread))
        assert found.words == "one unscored reward makes its whole group NaN"


def test_a_second_search_keeps_what_the_first_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A more thorough diagnosis of the same answers computes no limits twice."""
    program, evaluated = PROGRAMS["preference_loss"], []
    samples = of_oracle(program, calls(program, DPO))
    for sample in samples:
        sample.got["gradient"][...] *= np.where(np.arange(sample.got["gradient"].size) % 2, 1.3, 1.0).reshape(
            sample.got["gradient"].shape
        )
    evaluate = search.evaluate
    monkeypatch.setattr(search, "evaluate", lambda *arguments: evaluated.append(arguments) or evaluate(*arguments))
    searches: dict[bool, search.Search] = {}
    for count in (True, False):
        evaluated.clear()
        assert diagnose(program, samples, pairs=False, searches=searches).kind == "nothing known"
        assert bool(evaluated) == count
