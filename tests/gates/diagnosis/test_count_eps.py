"""A constant added to a count of tokens is another choice, named with its size."""

import numpy as np
import pytest
from edited import calls, in_dtype, of_oracle

from gates.diagnosis.diagnose import diagnose
from gates.families.program import Inputs, Sample
from gates.families.programs import programs
from gates.model import Array

PROGRAMS = programs()
LOSS = "loss.grpo.matches-definition-ragged"
SIZES = (1e-4, 1e-5, 1e-6)


def counted(inputs: Inputs, output: str, value: Array, eps: float) -> Array:
    """Return a row mean's loss or gradient with n + ε in the place of n: each row by itself, as the oracle gives it."""
    n = np.maximum(np.asarray(inputs["mask"], bool).sum(axis=1), 1)
    share = n / (n + eps)
    if output == "gradient":
        return value * share[:, None]
    per_row = {"policy": 2, "old": 2, "reference": 2, "advantages": 1, "mask": 2, "weights": 1}
    rows = []
    for i in range(len(n)):
        own = {name: x[i : i + 1] if name in per_row and x is not None else x for name, x in inputs.items()}
        rows.append(of_oracle(PROGRAMS["policy_loss"], [own])[0].got["loss"] * share[i])
    return np.asarray(np.mean(rows))


def added(name: str, eps: float, dtype: str = "float64") -> list[Sample]:
    """Return the oracle's GRPO with ε added to the count of each row's tokens."""
    program = PROGRAMS["policy_loss"]
    given = [in_dtype(inputs, dtype) for inputs in calls(program, name)]
    return [
        Sample(sample.inputs, {output: counted(sample.inputs, output, x, eps) for output, x in sample.got.items()})
        for sample in of_oracle(program, given)
    ]


@pytest.mark.parametrize("eps", SIZES)
def test_it_is_a_choice_of_the_loss(eps: float) -> None:
    """Neither a mistake nor lower precision."""
    found = diagnose(PROGRAMS["policy_loss"], added(LOSS, eps))
    assert (found.kind, found.words) == ("convention", f"{eps:g} added to the count of tokens")


def test_it_is_named_in_float32() -> None:
    """Where it moves a loss by more than rounding does."""
    found = diagnose(PROGRAMS["policy_loss"], added(LOSS, 1e-4, "float32"))
    assert (found.kind, found.words) == ("convention", "0.0001 added to the count of tokens")


def test_it_is_named_with_another_aggregation() -> None:
    """A token mean with the constant, where a row mean is asked."""
    program = PROGRAMS["policy_loss"]
    given = [in_dtype(inputs, "float64") for inputs in calls(program, LOSS)]
    samples = of_oracle(program, given, aggregation="token-mean", dapo_denominator="global")
    moved = []
    for sample in samples:
        n = np.asarray(sample.inputs["mask"], bool).sum()
        moved.append(Sample(sample.inputs, {name: x * n / (n + 1e-4) for name, x in sample.got.items()}))
    found = diagnose(program, moved)
    assert found.kind == "convention"
    assert found.words.startswith("token mean over the step")
    assert found.words.endswith(" · 0.0001 added to the count of tokens")


def share(inputs: Inputs, eps: float) -> Array:
    """Return n / (n + ε) of each row."""
    n = np.maximum(np.asarray(inputs["mask"], bool).sum(axis=1), 1)
    return np.asarray(n / (n + eps))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("preference.simpo.matches-definition-plain-ordinary-float32", "1e-05 added to the count of tokens"),
        ("preference.orpo.matches-definition-plain-ordinary-float32", "1e-05 added to every count of tokens"),
    ],
)
def test_it_is_a_choice_of_a_preference_loss(name: str, words: str) -> None:
    """A mean log-prob with n + ε is that of log-probs times n / (n + ε)."""
    program, samples = PROGRAMS["preference_loss"], []
    for call in calls(program, name):
        inputs = in_dtype(call, "float64")
        of_rows = share(inputs, 1e-5)[:, None]
        (scaled,) = of_oracle(program, [{**inputs, "policy": inputs["policy"] * of_rows}])
        samples.append(Sample(inputs, {**scaled.got, "gradient": scaled.got["gradient"] * of_rows}))
    found = diagnose(program, samples)
    assert (found.kind, found.words) == ("convention", words)


def test_it_is_a_choice_of_a_kl() -> None:
    """Averaged over a row's tokens."""
    program = PROGRAMS["token_kl"]
    given = [in_dtype(call, "float64") for call in calls(program, "kl.k3.matches-definition-holes-mean-float32")]
    samples = [Sample(s.inputs, {"kl": s.got["kl"] * share(s.inputs, 1e-5)}) for s in of_oracle(program, given)]
    found = diagnose(program, samples)
    assert (found.kind, found.words) == ("convention", "1e-05 added to the count of tokens")


def test_it_is_a_choice_of_a_row_s_ratio() -> None:
    """Whose logarithm is a mean over tokens."""
    program = PROGRAMS["importance_ratio"]
    given = [in_dtype(call, "float64") for call in calls(program, "seq_mean-holes-typical-float32")]
    samples = [Sample(s.inputs, {"ratio": s.got["ratio"] ** share(s.inputs, 1e-5)}) for s in of_oracle(program, given)]
    found = diagnose(program, samples)
    assert (found.kind, found.words) == ("convention", "1e-05 added to the count of tokens")
