"""A KL in the loss whose gradient is not that of its value is another choice; one without gradient is a mistake."""

from collections.abc import Callable

import numpy as np
import pytest
from edited import calls, of_oracle

from gates.diagnosis.collect import declaration
from gates.diagnosis.diagnose import diagnose
from gates.diagnosis.named import Diagnosis
from gates.families.program import Inputs, Sample
from gates.families.programs import programs
from gates.model import Array
from gates_reference.oracle.kl import token_kl

PROGRAM = programs()["policy_loss"]
KL, TIMES_RATIO = "loss.grpo.matches-definition-kl", "loss.grpo.matches-definition-kl-times-token-ratio"
ESTIMATES: dict[str, Callable[[Array], Array]] = {  # functions of d = reference − policy
    "k1": lambda d: -d,
    "k2": lambda d: 0.5 * d * d,
    "k3": lambda d: np.exp(d) - d - 1.0,
    "|d|": np.abs,
}
DERIVATIVES: dict[str, Callable[[Array], Array]] = {  # by the policy's log-prob
    "k1": np.ones_like,
    "k2": lambda d: -d,
    "k3": lambda d: 1.0 - np.exp(d),
}
Parts = Callable[[Inputs, Array], tuple[Array, Array]]  # value and derivative of a token's KL


def diagnosed(name: str, parts: Parts) -> Diagnosis:
    """Diagnose the oracle's loss without a KL plus β times the row mean of this one."""
    samples = []
    for call in calls(PROGRAM, name):
        inputs = {x: v.astype(float) if isinstance(v, np.ndarray) and v.dtype != bool else v for x, v in call.items()}
        without = {**inputs, "beta": 0.0, "kl_estimator": None, "kl_ratio": None, "reference": None}
        (plain,) = of_oracle(PROGRAM, [without])
        mask = np.asarray(inputs["mask"], bool)
        value, slope = parts(inputs, inputs["reference"] - inputs["policy"])
        weight = inputs["beta"] * mask / (np.maximum(mask.sum(axis=1, keepdims=True), 1) * len(mask))
        got = {
            "loss": plain.got["loss"] + (weight * value).sum(),
            "gradient": plain.got["gradient"] + weight * slope,
        }
        samples.append(Sample(inputs, got))
    return diagnose(PROGRAM, samples)


def test_the_test_s_own_kl() -> None:
    """It is that of the oracle."""
    (call, *_) = calls(PROGRAM, KL)
    policy, reference, mask = call["policy"], call["reference"], np.asarray(call["mask"], bool)
    want = token_kl(policy=policy, reference=reference, mask=mask, estimator="k3", reduction="none")
    d = reference.astype(float) - policy
    np.testing.assert_allclose(np.where(mask, ESTIMATES["k3"](d), 0.0), want, rtol=1e-9, atol=1e-12)


def test_a_gradient_of_another_aggregation_is_a_mistake() -> None:
    """Loss and gradient of two definitions are nobody's choice, though each by itself is one."""
    samples = []
    for call in calls(PROGRAM, "loss.dapo.matches-definition-ragged"):
        (dapo,) = of_oracle(PROGRAM, [call])
        (grpo,) = of_oracle(PROGRAM, [{**call, "algorithm": "grpo"}])
        samples.append(Sample(call, {"loss": dapo.got["loss"], "gradient": grpo.got["gradient"]}))
    diagnosis = diagnose(PROGRAM, samples)
    assert diagnosis.words.startswith("the loss as asked, its gradient that of: ")
    assert (diagnosis.kind, diagnosis.changes) == ("mistake", {})


@pytest.mark.parametrize(
    ("value", "slope"),
    [("k3", "k2"), ("k1", "k2"), ("|d|", "k2"), ("k3", "k1"), ("k2", "k1"), ("k1", "k3"), ("k2", "k3")],
)
def test_the_gradient_of_another_estimator(value: str, slope: str) -> None:
    """Straight through, as verl's estimators with a plus."""
    found = diagnosed(KL, lambda inputs, d: (ESTIMATES[value](d), DERIVATIVES[slope](d)))
    words = f"KL by {value} with the gradient of {slope} (asked: k3)"
    assert (found.kind, found.words, declaration(PROGRAM, found)) == ("convention", words, "")


@pytest.mark.parametrize("value", ["k1", "k2", "k3"])
def test_a_constant_weight_of_log_pi(value: str) -> None:
    """As the reward of a policy gradient."""
    found = diagnosed(KL, lambda inputs, d: (ESTIMATES[value](d) * inputs["policy"], ESTIMATES[value](d)))
    assert (found.kind, found.words) == ("convention", f"KL by {value} as a constant, times log π (asked: k3)")


@pytest.mark.parametrize("value", ["k2", "k3"])
def test_the_gradient_of_log_pi(value: str) -> None:
    """The value is the estimate; only the sampling policy's log-probs have a gradient."""
    found = diagnosed(KL, lambda inputs, d: (ESTIMATES[value](d), ESTIMATES[value](d)))
    words = f"KL by {value} as a constant, times the gradient of log π"
    assert (found.kind, found.words.startswith(words)) == ("convention", True)


def ratio(inputs: Inputs) -> Array:
    """Return exp(policy − old)."""
    return np.asarray(np.exp(inputs["policy"] - inputs["old"]))


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        (KL, "convention", "KL times the token's ratio as a constant (asked: not weighed by a ratio)"),
        (TIMES_RATIO, "mistake", "the KL's ratio without gradient"),
    ],
)
def test_a_ratio_that_is_a_constant(name: str, kind: str, words: str) -> None:
    """A weight of the KL where none is asked; where the ratio is asked, its slope is missing."""
    found = diagnosed(
        name, lambda inputs, d: (ratio(inputs) * ESTIMATES["k3"](d), ratio(inputs) * DERIVATIVES["k3"](d))
    )
    assert (found.kind, found.words) == (kind, words)


@pytest.mark.parametrize("name", [KL, TIMES_RATIO])
def test_a_gradient_through_the_ratio_alone(name: str) -> None:
    """The estimate is a constant."""
    found = diagnosed(name, lambda inputs, d: (ratio(inputs) * ESTIMATES["k3"](d), ratio(inputs) * ESTIMATES["k3"](d)))
    assert found.kind == "convention"
    assert found.words.startswith("KL times the token's ratio, whose gradient alone it has (asked: ")


def test_a_kl_without_gradient_is_a_mistake() -> None:
    """It trains nothing."""
    found = diagnosed(KL, lambda inputs, d: (ESTIMATES["k3"](d), 0.0 * d))
    assert (found.kind, found.words) == ("mistake", "KL without gradient")
