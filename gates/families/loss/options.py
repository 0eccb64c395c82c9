"""The forward formula of a policy loss with options: off-policy corrections, a top-entropy mask and an entropy bonus.

The surrogate of a token is weighed by its correction and by whether it is among the tokens of highest entropy; the KL and the
denominators are those of all tokens. Source: Yao et al. 2025 (TIS, MIS); arXiv 2506.01939 (top-entropy mask).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from gates.arithmetic.functions import Value, clip, detached, exp, minimum, plain, sqrt, where
from gates.families.loss import inputs, option_edits, program
from gates.families.loss.step import Step
from gates.families.loss.terms import penalty
from gates.families.loss.textbook_steps import CLIPS
from gates.families.program import Choices, Data, Inputs, Program
from gates.model import Array


def asked(call: Inputs) -> Choices:
    """Return the choices that a call of `loss_with_options` asks for."""
    corrected = call["correction"] is not None
    return {
        **program.asked(_policy_call(call)),
        "weights": "given" if corrected else "none",
        "correction": call["correction"] or "none",
        "correction level": call["correction_level"],
        "bounds": (call["correction_low"], call["correction_high"]),
        "of": "old over sampling",
        "after": "nothing",
        "bounded": "ratio",
        "share": float(call["entropy_share"]),
        "threshold": "of 1 − ρ",
        "top": "surrogate",
        "bonus": float(call["entropy_bonus"]),
        "bonus over": "chosen",
        "bonus slope": 1.0,
    }


def _policy_call(call: Inputs) -> dict[str, Any]:
    """Return the call of `policy_loss` that a call with options extends."""
    low, high = CLIPS[call["algorithm"]]
    return {
        **{name: call[name] for name in ("policy", "old", "reference", "advantages", "mask", "algorithm", "beta")},
        "parts": call["parts"],
        "micro_batches": call["parts"],
        "epsilon_low": low,
        "epsilon_high": high,
        "dapo_denominator": "global" if call["algorithm"] == "dapo" else None,
        "kl_estimator": "k3",
        "kl_ratio": "none",
    }


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:
    """Return the loss, and its gradient by the entropies."""
    call, counts = _policy_call(data.inputs), np.asarray(data["mask"], bool)
    top = np.asarray(data.part(_key(chosen, OF_TOP), lambda: _top(data, chosen, counts)), bool)
    weights = data.part(_key(chosen, OF_WEIGHTS), lambda: _weights(data, chosen, variable, counts))
    if chosen["log_ratio"] == "sampling":
        call["old"], chosen = data["sampling"], {**chosen, "log_ratio": "given"}
    kept = where(top, weights, 0.0) if chosen["correction"] != "none" else top.astype(np.float64)
    of_tokens = top if chosen["top"] in {"denominators too", "mask itself"} else counts
    policy_choices = {**chosen, "weights": "in the ratio" if chosen["weights"] == "in the ratio" else "given"}
    step_data = Data({**call, "mask": of_tokens, "weights": kept}, data.bounded, data.parts)
    if chosen["kl"] == program.REWARDED or not chosen["beta"]:
        loss = program.compute(step_data, policy_choices, variable)["loss"]
    else:
        loss = program.compute(step_data, {**policy_choices, "beta": 0.0}, variable)["loss"]
        names = [name for name in chosen if name not in program.OF_SURROGATE and not name.startswith("bonus")]
        key = ("of KL", *_key(chosen, names))
        loss = loss + data.part(key, lambda: _penalty(data, call, chosen, variable, top, weights))
    pull = BONUSES[chosen["bonus over"]](Entropies(data, chosen, counts, top, weights))
    heights = np.where(counts, np.asarray(data["entropy"], np.float64), 0.0)
    lifted = data.lift(heights, _dtype(data)) * pull
    c = data.scalar(chosen["bonus"], _dtype(data))
    return {"loss": loss - lifted.sum() * c, "entropy_gradient": -(pull * c) * chosen["bonus slope"]}


OF_TOP = ("threshold", "share")  # choices of which the tokens that train depend
OF_WEIGHTS = (
    "correction",
    "correction level",
    "bounds",
    "of",
    "after",
    "bounded",
)  # choices of which the correction depends


def _key(chosen: Choices, names: Iterable[str]) -> tuple[Any, ...]:
    return tuple((name, chosen[name]) for name in names)


def _dtype(data: Data) -> str:
    return np.asarray(data["policy"]).dtype.name


def _penalty(data: Data, call: Inputs, chosen: Choices, variable: Value, top: Array, weights: Value) -> Value:
    """Return β times the mean KL, of all tokens unless an edit weighs it."""
    weighed = chosen["weights"] == "on the KL too"
    kept = weights if weighed else np.ones(top.shape)
    kept = where(top, kept, 0.0) if chosen["top"] == "KL too" else kept
    mask = top if chosen["top"] == "mask itself" else call["mask"]
    choices = {**chosen, "weights": "on the KL too" if weighed or chosen["top"] == "KL too" else "none"}
    return penalty(Step(Data({**call, "mask": mask, "weights": kept}, data.bounded), choices, variable))


# --- the tokens of highest entropy


def _top(data: Data, chosen: Choices, counts: Array) -> Array:
    """Return the tokens that train the policy, (B, T)."""
    heights = np.where(counts, np.asarray(data["entropy"], np.float64), 0.0)
    kind, share = chosen["threshold"], chosen["share"]
    if kind == "without":
        return counts
    if kind == "lowest":
        return np.asarray(counts & (heights <= np.quantile(heights[counts], share)))
    blocks = {"of each part": data["parts"], "of each row": [1] * len(counts)}.get(kind, [len(counts)])
    limit = THRESHOLDS.get(kind, THRESHOLDS["of 1 − ρ"])
    least = np.zeros((len(counts), 1))
    for end, size in zip(np.cumsum(blocks), blocks, strict=True):
        rows = slice(end - size, end)
        some = heights[rows].reshape(-1) if kind == "of all slots" else heights[rows][counts[rows]]
        least[rows] = limit(some, share) if some.size else 0.0
    if kind in {"below", "above"}:
        higher = np.quantile(heights[counts], 1.0 - share, method="higher")
        return np.asarray(counts & (heights < least if kind == "below" else heights > higher))
    return np.asarray(counts & (heights >= least))


THRESHOLDS: Mapping[str, Callable[[Array, float], Any]] = {  # functions of entropies and ρ
    "of 1 − ρ": lambda heights, share: np.quantile(heights, 1.0 - share),
    "of ρ": np.quantile,
    "ρ nats": lambda heights, share: share,  # noqa: ARG005
    "mean": lambda heights, share: heights.mean(),  # noqa: ARG005
    "lower": lambda heights, share: np.quantile(heights, 1.0 - share, method="lower"),
    "median": lambda heights, share: np.median(heights),  # noqa: ARG005
    "share of the largest": lambda heights, share: (1.0 - share) * heights.max(),
}


# --- the correction for the sampler


def _weights(data: Data, chosen: Choices, variable: Value, counts: Array) -> Value:
    """Return the correction of each token, (B, T)."""
    if chosen["correction"] == "none":
        return np.ones(counts.shape)
    dtype = _dtype(data)
    sampling = np.asarray(data["sampling"], np.float64)
    known = counts & ~np.isnan(sampling)
    models = {name: data.lift(np.where(known, data[name], 0.0), dtype) for name in ("old", "sampling", "reference")}
    models["policy"] = where(known, variable, 0.0)
    first, second = PAIRS.get(chosen["of"], ("old", "sampling"))
    d = where(known, DIFFERENCES.get(chosen["of"], DIFFERENCES["given"])(models[first], models[second]), 0.0)
    if chosen["of"] != "of the policy, alive":
        d = detached(d)
    d = LEVELS[chosen["correction level"]](d, counts) * np.ones(counts.shape)
    r = d if chosen["of"] == "log" else exp(d)
    bounded = exp(_bounded(data, chosen, d)) if chosen["bounded"] == "logarithm" else _bounded(data, chosen, r)
    if chosen["bounded"] == "logarithm" and chosen["correction"] == "mis":
        kept = _bounded(data, {**chosen, "after": "1 inside"}, d)
        bounded = where(plain(kept) > 0.0, r, 0.0)
    return _after(chosen["after"], bounded, counts)


DIFFERENCES: Mapping[str, Callable[[Value, Value], Value]] = {  # functions of the log-probs of both policies
    "given": lambda first, second: first - second,
    "of probabilities": lambda first, second: exp(first) - exp(second),
    "old ignored": lambda first, second: -second,  # noqa: ARG005
    "sampler ignored": lambda first, second: first,  # noqa: ARG005
}

PAIRS = {
    "inverted": ("sampling", "old"),
    "of the policy": ("policy", "sampling"),
    "of the policy, alive": ("policy", "sampling"),
    "of the reference": ("reference", "sampling"),
    "to the reference": ("old", "reference"),
    "to the policy": ("old", "policy"),
}
LEVELS: Mapping[str, Callable[[Value, Array], Value]] = {  # functions of D of each token, 0 elsewhere
    "token": lambda d, counts: d,  # noqa: ARG005
    "seq_sum": lambda d, counts: d.sum(1).reshape(-1, 1),  # noqa: ARG005
    "padding too": lambda d, counts: d.sum(1).reshape(-1, 1),  # noqa: ARG005
    "seq_mean": lambda d, counts: d.sum(1).reshape(-1, 1) / np.maximum(counts.sum(axis=1, keepdims=True), 1.0),
    "batch": lambda d, counts: d.sum() / float(max(counts.sum(), 1)),
}


def _bounded(data: Data, chosen: Choices, r: Value) -> Value:
    low, high = (None if bound is None else data.scalar(bound, _dtype(data)) for bound in chosen["bounds"])
    if chosen["correction"] == "tis":
        return clip(r, low, high)
    weights, inside, outside = r, chosen["after"] == "1 inside", 1.0 if chosen["after"] == "1 outside" else 0.0
    weights = r * 0.0 + 1.0 if inside else r
    weights = weights if low is None else where(r >= low, weights, outside)
    return weights if high is None else where(r <= high, weights, outside)


def _after(choice: str, weights: Value, counts: Array) -> Value:
    if choice == "mean 1":
        return weights / (where(counts, weights, 0.0).sum() / float(max(counts.sum(), 1)))
    if choice == "next row":
        return weights[np.roll(np.arange(len(counts)), -1)]
    if choice == "row mean":
        n = np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
        return where(counts, weights, 0.0).sum(1, keepdims=True) / n * np.ones(counts.shape)
    return AFTER.get(choice, lambda w: w)(weights)


AFTER: Mapping[str, Callable[[Value], Value]] = {
    "squared": lambda w: w * w,
    "inverse": lambda w: 1.0 / w,
    "root": sqrt,
    "at most 1": lambda w: minimum(w, 1.0),
    "as mask": lambda w: w * 0.0 + (plain(w) > 0.0),
}


# --- the entropy bonus


class Entropies:
    """What the weights of an entropy bonus are made of.

    Attributes:
        counts: (B, T) bool, all tokens.
        top: (B, T) bool, the tokens that train the policy.
        weights: (B, T), the correction of each token.
    """

    def __init__(self, data: Data, chosen: Choices, counts: Array, top: Array, weights: Value) -> None:
        self.data, self.chosen, self.counts, self.top, self.weights = data, chosen, counts, top, weights

    def over(self, tokens: Array, divisor: float) -> Value:
        """Return 1 / divisor for each of these tokens, rounded once."""
        n = max(float(divisor), 1.0)
        ones = self.data.lift(tokens.astype(np.float64), _dtype(self.data))
        return ones / n

    def by_blocks(self, blocks: list[int], divisor: float) -> Value:
        """Return the weights of the mean, or sum, over blocks of rows of each one's mean over its tokens."""
        sizes = [max(float(self.top[end - size : end].sum()), 1.0) for end, size in _ends(blocks)]
        return self.over(self.top, 1.0) / (np.repeat(sizes, blocks)[:, None] * divisor)

    def as_loss(self) -> Value:
        """Return the weights of the loss's own mean."""
        step = Step(Data(_policy_call(self.data.inputs), self.data.bounded), self.chosen, self.over(self.top, 1.0))
        return self.over(self.top, 1.0) * step.row_weights()


def _ends(blocks: list[int]) -> Iterator[tuple[int, int]]:
    return zip(np.cumsum(blocks).tolist(), blocks, strict=True)


BONUSES: Mapping[str, Callable[[Entropies], Value]] = {  # the weight of each token's entropy, (B, T)
    "chosen": lambda of: of.over(of.top, of.top.sum()),
    "all tokens": lambda of: of.over(of.counts, of.counts.sum()),
    "chosen, over all": lambda of: of.over(of.top, of.counts.sum()),
    "all, over chosen": lambda of: of.over(of.counts, of.top.sum()),
    "slots": lambda of: of.over(of.top, of.counts.size),
    "row means": lambda of: of.by_blocks([1] * len(of.counts), float(len(of.counts))),
    "part means": lambda of: of.by_blocks(list(of.data["parts"]), float(len(of.data["parts"]))),
    "sum of part means": lambda of: of.by_blocks(list(of.data["parts"]), 1.0),
    "rows": lambda of: of.over(of.top, float(len(of.counts))),
    "sum": lambda of: of.over(of.top, 1.0),
    "weighted": lambda of: of.over(of.top, of.top.sum()) * detached(of.weights),
    "as the loss": lambda of: of.as_loss(),
    "times advantages": lambda of: of.over(of.top, of.top.sum()) * np.asarray(of.data["advantages"]).reshape(-1, 1),
    "column means": lambda of: of.over(of.top, of.top.shape[1]) / np.maximum(of.top.sum(axis=0, keepdims=True), 1.0),
    "over the rest": lambda of: of.over(of.counts & ~of.top, max(float((of.counts & ~of.top).sum()), 1.0)),
}


# --- designed calls


def designed(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight steps with the settings of a call, in micro-batches of several sizes.

    The quantile of the entropy lies between two tokens, so that rounding does not decide which of them train.
    """
    spread = 0.12 if example["correction_level"] == "seq_sum" else 0.4
    for rows, width, group in inputs.SHAPES:
        step = inputs.batch(_policy_call(example), rng, rows, width, group, empty=False)
        mask, old = np.asarray(step["mask"], bool).copy(), step["old"]
        entropy = rng.gamma(0.8, 0.9, mask.shape)
        for row in np.flatnonzero(np.asarray(step["advantages"])[2:] < 0.0)[:1] + 2:  # weighed, unlike the first two
            old[row, 1] = step["policy"][row, 1] + inputs.BELOW
            entropy[row, 1] += 9.0
        while _decided_by_rounding(int(mask.sum()), 1.0 - float(example["entropy_share"])):
            mask[np.argmax(mask.sum(axis=1)), mask.sum(axis=1).max() - 1] = False
        equal = len(set(example["parts"])) == 1
        whole = [rows] if len(example["parts"]) == 1 else inputs.micro_batches(rows, width, equal=equal)
        sampling = old + rng.normal(0.0, spread, mask.shape)
        sampling[:2] += 2.0 * spread * np.array([[1.0], [-1.0]])  # rows on both sides of the bounds
        yield {
            **example,
            **{name: step[name] for name in ("policy", "old", "advantages")},
            "reference": (step["policy"] + rng.normal(0.0, 0.4, mask.shape)).astype(old.dtype),
            "sampling": sampling.astype(old.dtype),
            "entropy": entropy.astype(old.dtype),
            "mask": mask,
            "parts": whole,
        }


def _decided_by_rounding(tokens: int, share: float) -> bool:
    rank = (tokens - 1) * share
    return 0.0 < share < 1.0 and abs(rank - round(rank)) < 0.02


PROGRAM = Program(
    op="loss_with_options",
    asked=asked,
    compute=compute,
    edits=option_edits.edits,
    inputs=designed,
    outputs=("loss", "entropy_gradient", "gradient"),
    variable="policy",
    pairs=False,
)
PROGRAMS = (PROGRAM,)
