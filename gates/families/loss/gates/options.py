"""Do off-policy corrections, the top-entropy mask and the entropy bonus have exactly their defined effect?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from gates.families import arrays
from gates.families.loss.op import KEEP_GROUPS, LOSS_WITH_OPTIONS, OVERLONG_PENALTY
from gates.families.units import FLOAT32_U
from gates.model import Array, Bound, Case, Draw, Evidence, Probe, Trial
from gates.registry import gate
from gates_reference.oracle import losses, ratio

OFF: dict[str, Any] = {
    "beta": 0.0,
    "correction": None,
    "correction_level": "seq_sum",
    "correction_low": None,
    "correction_high": 2.0,
    "entropy_share": 1.0,
    "entropy_bonus": 0.0,
}
CLIPS = {"grpo": (0.2, 0.2), "dapo": (0.2, 0.28), "gspo": (3e-4, 4e-4)}  # the algorithms' defaults
WHOLE, PARTS = (12,), (2, 7, 3)
TOKEN = {"correction_level": "token", "correction_low": 0.5, "correction_high": 1.5}
ROW = {"correction_level": "seq_sum", "correction_low": 0.3, "correction_high": 2.0}
CASES: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "tis-token": ("grpo", WHOLE, {**TOKEN, "correction": "tis"}),
    "mis-token": ("dapo", WHOLE, {**TOKEN, "correction": "mis", "beta": 0.3}),
    "tis-sequence": ("gspo", WHOLE, {**ROW, "correction": "tis"}),
    "mis-sequence": ("grpo", PARTS, {**ROW, "correction": "mis"}),
    "top-entropy": ("grpo", WHOLE, {"entropy_share": 0.3, "beta": 0.3}),
    "top-entropy-in-parts": ("dapo", PARTS, {"entropy_share": 0.2, "beta": 0.3}),
    "top-entropy-of-rows": ("gspo", PARTS, {"entropy_share": 0.5}),
    "bonus": ("grpo", PARTS, {"entropy_bonus": 0.1}),
    "bonus-of-the-top": ("dapo", PARTS, {"entropy_bonus": 0.1, "entropy_share": 0.4}),
    "everything": (
        "dapo",
        PARTS,
        {**TOKEN, "correction": "tis", "entropy_share": 0.4, "entropy_bonus": 0.05, "beta": 0.3},
    ),
}
BECAUSE = (
    "k·2u·S with S = Σ|terms|/denominator: 4 for the loss, and in these units 2 for a weight's exponential (2 ulp), 1 for its "
    "product with the advantage, 1 for the bonus; the entropy's gradient is a constant of two roundings"
)


def _make(rng: np.random.Generator, name: str, *, nan: str = "") -> dict[str, Any]:
    """Return a step; `nan` puts NaN into all "masked" slots, or into "unrecorded" sampler log-probs."""
    algorithm, parts, changes = CASES[name]
    inputs = arrays.loss_inputs(rng, rows=sum(parts), spread=0.02 if algorithm == "gspo" else 0.3)
    spread = 0.12 if changes.get("correction_level") == "seq_sum" else 0.4
    sampling = inputs["old"] + rng.normal(0.0, spread, inputs["old"].shape)
    entropy = rng.gamma(0.8, 0.9, sampling.shape).astype(np.float32)
    step = {**inputs, "sampling": sampling.astype(np.float32), "entropy": entropy}
    if nan == "unrecorded":
        step["sampling"][rng.random(sampling.shape) < 0.1] = np.nan
    if nan == "masked":
        for key in ("policy", "old", "reference", "sampling", "entropy"):
            step[key] = np.where(step["mask"], step[key], np.float32(np.nan))
    return {**step, "algorithm": algorithm, "parts": list(parts), **OFF, **changes}


def _cases() -> Iterator[Case]:
    for name, (algorithm, parts, changes) in CASES.items():
        conventions: dict[str, Any] = {"algorithm": algorithm, "dtype": "float32", "parts": "any"}
        if parts == WHOLE:
            conventions["parts"] = "equal"
        if changes.get("correction"):
            conventions |= {"correction": changes["correction"], "correction_level": changes["correction_level"]}
        yield Case(f"{name}-plain", partial(_make, name=name), quick=True, conventions=conventions)
        if name in {"tis-token", "mis-sequence"}:
            unrecorded, rule = partial(_make, name=name, nan="unrecorded"), {"nan_sampling": "unrecorded"}
            yield Case(f"{name}-unrecorded", unrecorded, conventions=conventions, declared=rule, level="rule")
        if name in {"everything", "mis-sequence"}:
            masked = partial(_make, name=name, nan="masked")
            yield Case(f"{name}-masked-nan", masked, conventions=conventions, level="hardening")


def expected(x: Mapping[str, Any]) -> tuple[losses.PolicyLoss, Array, float, float]:
    """Return the policy loss of the oracle, the chosen tokens, the loss with the bonus, and the bonus."""
    mask, rows = x["mask"], x["mask"].sum(axis=1)
    heights = np.where(mask, x["entropy"].astype(np.float64), 0.0)
    least = np.quantile(heights[mask], 1.0 - x["entropy_share"])  # linear, over the whole step
    chosen = mask & (heights >= least)
    weights = np.ones(mask.shape)
    if x["correction"] is not None:
        corrected = ratio.importance_weights(
            x["old"],
            x["sampling"],
            mask,
            correction=x["correction"],
            level=x["correction_level"],
            c_min=x["correction_low"],
            c_max=x["correction_high"],
        )
        weights = corrected if corrected.shape == mask.shape else np.broadcast_to(corrected[:, None], mask.shape)
    kept = np.where(chosen, weights, 0.0)
    low, high = CLIPS[x["algorithm"]]
    want = losses.policy_loss(
        x["policy"],
        old=x["old"],
        reference=x["reference"] if x["beta"] else None,
        advantages=x["advantages"],
        mask=mask,
        algorithm=x["algorithm"],
        epsilon_low=low,
        epsilon_high=high,
        delta=None,
        beta=x["beta"],
        kl_ratio="none",
        kl_estimator="k3",
        dapo_denominator="global" if x["algorithm"] == "dapo" else None,
        weights=kept.sum(axis=1) / rows if x["algorithm"] == "gspo" else kept,
    )
    bonus = x["entropy_bonus"] * heights[chosen].sum() / chosen.sum()
    return want, chosen, want.loss - bonus, bonus


def _preconditions(t: Draw) -> Iterator[Evidence]:
    x = t.inputs
    want, chosen, *_ = expected(x)
    mask = x["mask"]
    if x["correction"] is not None or x["entropy_share"] < 1.0:
        plain, *_ = expected({**x, "correction": None, "entropy_share": 1.0})
        moved = np.abs(plain.gradient - want.gradient).max() / np.abs(want.gradient).max()
        yield t.precondition("change of the gradient by weights and mask, relative", moved, ">=", 1e-2)
    if x["entropy_share"] < 1.0:
        yield from _sure(t, mask)
        yield t.precondition("tokens that the mask leaves out", int((mask & ~chosen).sum()), ">=", 10)
        own = [np.quantile(h[m], 1.0 - x["entropy_share"]) for h, m in _by_part(x)]
        yield t.precondition(
            "spread of the parts' own quantiles", float(np.ptp(own)) if len(own) > 1 else 1.0, ">=", 1e-2
        )
    yield t.precondition("share of elements at a clip bound", want.near_branch[mask].mean(), "<=", 0.0)
    yield t.precondition("largest |∂loss/∂policy| of the definition", np.abs(want.gradient).max(), ">", 1e-3)


@gate(
    "loss.options.match-definition",
    level="definition",
    name="policy_loss[options]",
    question="Do TIS, MIS, the top-entropy mask and the entropy bonus keep every denominator, and leave the KL alone?",
    why="A mask that shrinks the denominator raises the step with every token it drops; a quantile per micro-batch is noise.",
    ops=(LOSS_WITH_OPTIONS,),
    cases=tuple(_cases()),
    bounds={
        "loss error in 2u·S": Bound("derived", f"{BECAUSE}; k = 8", 8.0, "precision"),
        "gradient error in 2u·S": Bound("derived", f"{BECAUSE}; k = 8", 8.0, "precision"),
        "entropy gradient error in 2u·S": Bound("derived", f"{BECAUSE}; k = 2", 2.0, "precision"),
    },
    requires=_preconditions,
    probes=(Probe("loss_with_options", ("loss", "gradient")),),
)
def options_match_definition(t: Trial) -> Iterator[Evidence]:
    """Compare loss and both gradients with the oracle's policy loss with masked weights, plus the bonus."""
    x = dict(t.inputs)
    want, chosen, loss, bonus = expected(x)
    mask = x["mask"]
    got = t.got(LOSS_WITH_OPTIONS, **x)
    unit, tiny = 2 * FLOAT32_U, float(np.finfo(np.float32).tiny)
    limits = t.textbook(LOSS_WITH_OPTIONS, **x)
    size = unit * (want.loss_scale + bonus)
    yield from t.agrees("loss error in 2u·S", got["loss"], loss, limits["loss"], scale=size)
    scale = unit * np.where(mask, np.maximum(want.gradient_scale, tiny), 0.0)
    yield from t.agrees("gradient error in 2u·S", got["gradient"], want.gradient, limits["gradient"], scale=scale)
    pull, slopes = np.where(chosen, -x["entropy_bonus"] / chosen.sum(), 0.0), limits["entropy_gradient"]
    yield from t.agrees(
        "entropy gradient error in 2u·S", got["entropy_gradient"], pull, slopes, scale=unit * np.abs(pull)
    )


def _sure(t: Draw, mask: Array) -> Iterator[Evidence]:
    """Require that float32 finds the same quantile: between two tokens and close to neither."""
    heights, share = t.inputs["entropy"][mask].astype(np.float64), 1.0 - t.inputs["entropy_share"]
    rank = (heights.size - 1) * share
    yield t.precondition("place of the quantile between two tokens", abs(rank - np.round(rank)), ">=", 1e-3)
    near = np.abs(heights - np.quantile(heights, share)).min()
    yield t.precondition("distance of the quantile from the nearest entropy", near, ">=", 1e-4)


def _by_part(x: Mapping[str, Any]) -> Iterator[tuple[Array, Array]]:
    ends = np.cumsum(x["parts"])[:-1]
    return zip(np.split(x["entropy"], ends), np.split(x["mask"], ends), strict=True)


def _rewards(rng: np.random.Generator, convention: str, *, unscored: bool = False) -> dict[str, Any]:
    accuracy = rng.integers(0, 2, (40, 4)).astype(np.float64)
    accuracy[:6] = rng.integers(0, 2, (6, 1))
    style = np.where(rng.random((40, 4)) < 0.5, 0.25, 0.0)
    style[:3] = 0.0
    if unscored:
        accuracy[10:14][rng.random((4, 4)) < 0.5] = np.nan
        accuracy[14], accuracy[15, 1:], style[14] = np.nan, np.nan, np.nan
    rewards = np.stack([style.reshape(-1), accuracy.reshape(-1)], axis=1)
    return {
        "rewards": rewards,
        "weights": np.array([0.5, 1.0]),
        "group_size": 4,
        "convention": convention,
        "accuracy": 1,
    }


def _keep_cases() -> Iterator[Case]:
    for name in ("accuracy", "total"):
        conventions = {"convention": name}
        yield Case(f"{name}-scored", partial(_rewards, convention=name), quick=True, conventions=conventions)
        unscored = partial(_rewards, convention=name, unscored=True)
        rule = {"nan_rewards": "unscored"}
        yield Case(f"{name}-unscored", unscored, quick=True, conventions=conventions, declared=rule, level="rule")


def _conventions_differ(t: Draw) -> Iterator[Evidence]:
    own = t.inputs["convention"]
    kept = {name: t.want(KEEP_GROUPS, **{**t.inputs, "convention": name}) for name in ("accuracy", "total")}
    differ = int((kept["accuracy"] != kept["total"]).sum())
    yield t.precondition("groups on which the conventions differ", differ, ">=", 1)
    yield t.precondition("groups that are dropped", int((~kept[own]).sum()), ">=", 2)
    yield t.precondition("groups that are kept", int(kept[own].sum()), ">=", 2)


@gate(
    "loss.dapo.keeps-groups-that-differ",
    level="definition",
    name="keep_groups",
    question="Does dynamic sampling keep exactly the groups whose accuracy (or total) has max > min, NaN left out?",
    why="Judged by the total, a style reward keeps groups that are all right, whose accuracy teaches nothing.",
    ops=(KEEP_GROUPS,),
    cases=tuple(_keep_cases()),
    bounds={"groups judged otherwise": Bound("exact", "a comparison has no rounding", 0.0)},
    requires=_conventions_differ,
)
def keeps_groups_that_differ(t: Trial) -> Iterator[Evidence]:
    """Compare the kept groups; the two conventions must differ on the input."""
    x = dict(t.inputs)
    want = t.want(KEEP_GROUPS, **x)
    got = t.got(KEEP_GROUPS, **x)["keep"]
    same = got.shape == want.shape
    yield t.number("groups judged otherwise", int((got != want).sum()) if same else want.size, "<=")


def _lengths(rng: np.random.Generator, limit: int, buffer: int) -> dict[str, Any]:
    edges = np.arange(limit - buffer, limit + 2)
    return {"lengths": np.r_[edges, rng.integers(1, 2 * limit, 20)], "limit": limit, "buffer": buffer}


def _inside_and_beyond(t: Draw) -> Iterator[Evidence]:
    x, want = t.inputs, t.want(OVERLONG_PENALTY, **t.inputs)
    yield t.precondition("lengths inside the buffer", int(((want < 0) & (want > -1)).sum()), ">=", 3)
    yield t.precondition("lengths beyond the limit", int((x["lengths"] > x["limit"]).sum()), ">=", 1)


@gate(
    "loss.dapo.overlong-penalty",
    level="definition",
    name="overlong_penalty",
    question="Is the penalty 0 up to L_max − L_c, linear to −1 at L_max, and −1 beyond?",
    why="A reward for length, or a cliff at L_max, changes what the policy learns and never the loss's shape.",
    ops=(OVERLONG_PENALTY,),
    cases=tuple(
        Case(f"{limit}-{buffer}", partial(_lengths, limit=limit, buffer=buffer), quick=True)
        for limit, buffer in ((64, 16), (100, 7), (32, 32))
    ),
    bounds={
        "penalty error in 2u": Bound(
            "derived", "one division of whole numbers in float64: u relative", 2.0, "precision"
        )
    },
    requires=_inside_and_beyond,
    probes=(Probe("overlong_penalty", ("penalty",)),),
)
def overlong(t: Trial) -> Iterator[Evidence]:
    """Compare the penalties of lengths below, inside and beyond the buffer, its ends included."""
    x = dict(t.inputs)
    want = t.want(OVERLONG_PENALTY, **x)
    got = t.got(OVERLONG_PENALTY, **x)["penalty"]
    limits = t.textbook(OVERLONG_PENALTY, **x)["penalty"]
    yield from t.agrees("penalty error in 2u", got, want, limits, scale=2.0**-52 * np.abs(want))
