"""The forward definition of the KL of sampled tokens, and what people write instead.

An estimate of each token, clamped, times a ratio, added up over a row. Source: docs/definitions.md, "KL to the reference".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from gates.diagnosis.arithmetic import Value, absolute, clip, exp, where
from gates.diagnosis.program import Choices, Data, Inputs, Program
from gates.diagnosis.programs import full_kl, kl_edits, row_inputs
from gates.diagnosis.programs.rows import Grid, misread, tokens, total
from gates.model import Array


def asked(inputs: Inputs) -> Choices:
    """Return the choices that the keywords of `token_kl` ask for."""
    off_policy = inputs.get("old") is not None
    return {
        "mask": "given",
        "numerator": "tokens",
        "direction": "given",
        "estimator": inputs["estimator"],
        "clamp": inputs.get("kl_clamp"),
        "clamped": "both",
        "kl_ratio": inputs["kl_ratio"] if off_policy else "none",
        "reduction": inputs["reduction"],
        "sign": 1.0,
        "off_policy": off_policy,
    }


ESTIMATES: Mapping[str, Callable[[Value, Value, Value], Value]] = {  # of d, lp and ref
    "k1": lambda d, lp, ref: lp - ref,  # noqa: ARG005
    "k2": lambda d, lp, ref: d * d * 0.5,  # noqa: ARG005
    "k3": lambda d, lp, ref: exp(d) - d - 1.0,  # noqa: ARG005
    "absolute": lambda d, lp, ref: absolute(d),  # noqa: ARG005
    "k2 doubled": lambda d, lp, ref: d * d,  # noqa: ARG005
    "k3 without −1": lambda d, lp, ref: exp(d) - d,  # noqa: ARG005
    "k3 with +1": lambda d, lp, ref: exp(d) - d + 1.0,  # noqa: ARG005
    "k3 with +d": lambda d, lp, ref: exp(d) + d - 1.0,  # noqa: ARG005
    "k3 without d": lambda d, lp, ref: exp(d) - 1.0,  # noqa: ARG005
    "k3 of −d in exp": lambda d, lp, ref: exp(-d) - d - 1.0,  # noqa: ARG005
    "k3 halved": lambda d, lp, ref: (exp(d) - d - 1.0) * 0.5,  # noqa: ARG005
    "ratio": lambda d, lp, ref: exp(d),  # noqa: ARG005
    "policy weighted": lambda d, lp, ref: exp(lp) * (lp - ref),  # noqa: ARG005
    "k3, policy weighted": lambda d, lp, ref: exp(lp) * (exp(d) - d - 1.0),  # noqa: ARG005
    "reference weighted": lambda d, lp, ref: exp(ref) * (ref - lp),  # noqa: ARG005
    "ratio weighted": lambda d, lp, ref: exp(-d) * (lp - ref),
    "inverse ratio weighted": lambda d, lp, ref: exp(d) * d,  # noqa: ARG005
    "of probabilities": lambda d, lp, ref: exp(lp) - exp(ref),  # noqa: ARG005
}


class Rows:
    """The tokens of a call as (B, T), and the choices that read them."""

    def __init__(self, data: Data, chosen: Choices) -> None:
        self.data, self.chosen = data, chosen
        self.grid = Grid.of(data.inputs, "policy")
        self.counts = misread(self.grid.counts, chosen["mask"])
        self.lp, self.ref = (self.grid.lifted(data, name) for name in ("policy", "reference"))
        self.dtype = np.asarray(data["policy"]).dtype.name

    def held(self, value: Value, *, name: str = "both") -> Value:
        """Return a number within the clamp."""
        c = self.chosen["clamp"]
        if c is None:
            return value
        limit = self.data.scalar(c, self.dtype)
        return clip(value, None if name == "above" else -limit, None if name == "below" else limit)

    def summed(self, old: Value) -> Value:
        """Return Σ (lp − old) of each row, (B, 1)."""
        return total(self.lp - old, self.counts)


RATIOS: Mapping[str, Callable[[Rows, Value], Value]] = {  # of the rows and the old log-probs
    "token": lambda rows, old: exp(rows.lp - old),
    "token, inverted": lambda rows, old: exp(old - rows.lp),
    "token, to the reference": lambda rows, old: exp(rows.lp - rows.ref),  # noqa: ARG005
    "token, clipped": lambda rows, old: clip(exp(rows.lp - old), 0.8, 1.2),
    "sequence": lambda rows, old: exp(rows.summed(old) / tokens(rows.counts)),
    "sequence, over the width": lambda rows, old: exp(rows.summed(old) / float(rows.counts.shape[1])),
    "sequence, sum": lambda rows, old: exp(rows.summed(old)),
    "sequence, inverted": lambda rows, old: exp(-rows.summed(old) / tokens(rows.counts)),
    "sequence, mean of ratios": lambda rows, old: total(exp(rows.lp - old), rows.counts) / tokens(rows.counts),
}


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:  # noqa: ARG001  no gradient is asked
    """Return the KL of each token or row."""
    rows = Rows(data, chosen)
    lp, ref = (rows.lp, rows.ref) if chosen["direction"] == "given" else (rows.ref, rows.lp)
    d, clamped = ref - lp, chosen["clamped"]
    if clamped == "log-ratio":
        d = rows.held(d)
        lp, ref = -d, d * 0.0
    kl = ESTIMATES[chosen["estimator"]](d, lp, ref)
    if clamped in {"both", "above", "below"}:
        kl = rows.held(kl, name=clamped)
    if chosen["kl_ratio"] != "none":
        kl = kl * RATIOS[chosen["kl_ratio"]](rows, rows.grid.lifted(data, "old"))
    if clamped == "after the ratio":
        kl = rows.held(kl)
    summed = kl if chosen["numerator"] == "all" else where(rows.counts, kl, 0.0)
    found = REDUCTIONS[chosen["reduction"]](rows, summed * chosen["sign"])
    return {"kl": rows.held(found) if clamped == "after the reduction" else found}


REDUCTIONS: Mapping[str, Callable[[Rows, Value], Value]] = {
    "none": lambda rows, kl: rows.grid.back(kl),
    "sum": lambda rows, kl: kl.sum(1),  # noqa: ARG005
    "mean": lambda rows, kl: kl.sum(1) / tokens(rows.counts)[:, 0],
    "width": lambda rows, kl: kl.sum(1) / float(rows.counts.shape[1]),
    "longest": lambda rows, kl: kl.sum(1) / max(float(rows.counts.sum(axis=1).max()), 1.0),
    "given mask": lambda rows, kl: kl.sum(1) / tokens(rows.grid.counts)[:, 0],
    "mean length": lambda rows, kl: kl.sum(1) / max(float(rows.counts.sum(axis=1).mean()), 1.0),
    "square roots": lambda rows, kl: kl.sum(1) / np.sqrt(tokens(rows.counts)[:, 0]),
    "one less": lambda rows, kl: kl.sum(1) / np.maximum(tokens(rows.counts)[:, 0] - 1.0, 1.0),
    "one more": lambda rows, kl: kl.sum(1) / (tokens(rows.counts)[:, 0] + 1.0),
    "batch": lambda rows, kl: kl.sum() / max(float(rows.counts.sum()), 1.0),
    "mean of row means": lambda rows, kl: (kl.sum(1) / tokens(rows.counts)[:, 0]).mean(),
    "batch sum": lambda rows, kl: kl.sum(),  # noqa: ARG005
    "columns": lambda rows, kl: kl.sum(0),  # noqa: ARG005
}


def designed(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight batches with the settings of a call: d of both signs, and two of each batch beyond a clamp of 10."""
    for mask in row_inputs.masks(example, "policy", rng):
        policy = -np.asarray(rng.gamma(1.5, 0.8, mask.shape)) - 1e-3
        d = np.asarray(rng.normal(0.1, 0.7, mask.shape))
        d[0, np.argmax(mask[0])], d[-1, np.argmax(mask[-1])] = 3.4, -3.4
        arrays = {"policy": policy, "reference": policy + d, "old": policy - rng.normal(0.1, 0.5, mask.shape)}
        yield row_inputs.laid_out(example, "policy", arrays, mask)


def examples(inputs: Inputs) -> Iterator[Inputs]:
    """Yield a call with an older policy, by which a ratio shows, then the call as it is."""
    if inputs.get("old") is None:
        yield {**inputs, "old": inputs["policy"], "kl_ratio": "none"}
    yield inputs


def places(inputs: Inputs, output: str) -> Iterator[tuple[str, Array]]:  # noqa: ARG001  there is one
    """Yield sets of tokens or of rows by name."""
    if inputs["reduction"] != "none":
        yield from row_inputs.row_places(inputs, "policy")
        return
    yield from row_inputs.places(inputs, "policy")
    policy, reference = (np.asarray(inputs[name], np.float64) for name in ("policy", "reference"))
    counts = row_inputs.tokens(inputs, "policy")
    named = {
        "where the reference is above the policy": reference > policy,
        "where the reference is below the policy": reference < policy,
        "where |d| > 1": np.abs(reference - policy) > 1.0,
        "where |d| > 3": np.abs(reference - policy) > 3.0,
    }
    yield from ((name, place & counts) for name, place in named.items())


PROGRAM = Program(
    op="token_kl",
    asked=asked,
    compute=compute,
    edits=kl_edits.edits,
    inputs=designed,
    outputs=("kl",),
    places=places,
    presets=kl_edits.presets,
    examples=examples,
)
PROGRAMS = (PROGRAM, full_kl.PROGRAM)
