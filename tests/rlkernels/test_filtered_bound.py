"""`rlkernels.filtered_logprobs` with penalties is within k * 2u * S, S as docs/definitions.md, "The scales", has it."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

import rlkernels
from gates.families.sampling.cases import scale

V = 64
Array = np.ndarray[Any, Any]
Case = dict[str, Any]

OFFSETS = {
    "penalty": {"repetition_penalty": 1.3, "temperature": 0.1},
    "penalty-below-1": {"repetition_penalty": 0.6, "temperature": 0.5},
    "near-1000": {"repetition_penalty": 1.3, "temperature": 0.1, "offset": 1000.0},
    "counts": {"frequency_penalty": 0.7, "presence_penalty": -1.1, "temperature": 0.3, "offset": -300.0},
    "bias": {"repetition_penalty": 1.1, "temperature": 0.2, "bias": 40.0},
}


def inputs_of(case: Case) -> Case:
    """Draw (6, 64) logits, and the lists that the penalties of the case read."""
    rng = np.random.default_rng(3)
    inputs = {name: value for name, value in case.items() if name not in ("offset", "bias")}
    inputs |= {"logits": rng.normal(case.get("offset", 0.0), 3.0, (6, V)), "order": "hf"}
    inputs |= {"repetition_penalty": case.get("repetition_penalty", 1.0), "history": rng.integers(0, V, (6, 30))}
    if "frequency_penalty" in case:
        inputs["generated"] = rng.integers(0, V, (6, 20))
    if "bias" in case:
        inputs["logit_bias"] = rng.normal(case["bias"], 1.0, V)
    return inputs


def exact(inputs: Case, row: int) -> list[mpmath.mpf]:
    """Return the log-probabilities of a row in 50 digits, parameters as the float64 numbers that they are."""
    counts = np.bincount(inputs["generated"][row], minlength=V) if "generated" in inputs else np.zeros(V, int)
    bias = inputs.get("logit_bias", np.zeros(V))
    scaled = []
    for v in range(V):
        x = mpmath.mpf(float(inputs["logits"][row, v])) + mpmath.mpf(float(bias[v]))
        if v in inputs["history"][row]:
            x = x / inputs["repetition_penalty"] if x > 0 else x * inputs["repetition_penalty"]
        x -= int(counts[v]) * mpmath.mpf(inputs.get("frequency_penalty", 0.0))
        x -= int(counts[v] > 0) * mpmath.mpf(inputs.get("presence_penalty", 0.0))
        scaled.append(x / mpmath.mpf(inputs["temperature"]))
    log_sum = mpmath.log(mpmath.fsum(mpmath.exp(x - max(scaled)) for x in scaled))
    return [x - max(scaled) - log_sum for x in scaled]


def documented_scale(inputs: Case, want: Array) -> Array:
    """Return S as the table words it."""
    bias = np.abs(inputs.get("logit_bias", np.zeros(V)))
    width = inputs["generated"].shape[1] if "generated" in inputs else 0
    of_counts = abs(inputs.get("presence_penalty", 0.0)) + width * abs(inputs.get("frequency_penalty", 0.0))
    a = np.abs(inputs["logits"]) + bias + of_counts
    reach = max(inputs["repetition_penalty"], 1 / inputs["repetition_penalty"]) / min(inputs["temperature"], 1.0)
    likeliest = want.max(axis=-1, keepdims=True)
    return np.asarray(reach * (a + a.max(axis=-1, keepdims=True)) + np.log(V) + np.maximum(1.0, -likeliest))


@pytest.mark.parametrize("case", OFFSETS.values(), ids=OFFSETS)
class TestBoundOfFilteredLogprobs:
    """Penalties and bias round logits as large as they are."""

    def test_kernel_is_within_8_units(self, case: Case) -> None:
        """Against mpmath."""
        inputs = inputs_of(case)
        got = rlkernels.filtered_logprobs(**inputs)
        with mpmath.workdps(50):
            want = [exact(inputs, row) for row in range(len(got))]
            size = documented_scale(inputs, np.array(want, float))
            errors = [
                [abs(mpmath.mpf(float(g)) - w) for g, w in zip(*rows, strict=True)]
                for rows in zip(got, want, strict=True)
            ]
        assert np.all(np.array(errors, float) <= 8 * 2 * 2.0**-53 * size)

    def test_gate_has_the_documented_scale(self, case: Case) -> None:
        """Of the same inputs."""
        inputs = inputs_of(case)
        want = rlkernels.filtered_logprobs(**inputs)
        assert scale(inputs, want) == pytest.approx(documented_scale(inputs, want), rel=1e-12)
