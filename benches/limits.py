"""Limits for the results of both sides: the oracle's answer for the inputs of a row, and limits with their reasons.

rlkernels has the limits of docs/definitions.md. A peer has those of a careful float32 program, so that a time is refused for
a wrong formula but not for rounding.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from gates.families.sampling.cases import OFF
from gates_reference.oracle import advantages, filters, kl, logprobs, losses, packing

from . import workloads
from .timing import ACCURACY, Evidence, K, U, within

SLACK = 64.0  # in 2u of the scale: a float32 program rounds differences, exponentials and sums
AS_WRITTEN = "float32 rounding of exp(d) − d − 1 as written, 4·2u·(e^d + |d| + 1) per token"
SHARE = 2.0**-12
SUMS = "float32 sums over up to 151,936 tokens: 2^-12 of the scale (their bound n·u is 2^-7 of it)"
MASS = 2e-3
BOUNDARY = "a peer sums float32 probabilities, MLX one after the other: tokens at the threshold differ, up to this mass"
MOVED = "the mass that a boundary moves, over the 0.95 that is left, is an error of every log-prob"
DRAWN = "a random draw must come from what the oracle keeps, tokens within 2e-3 of the threshold included"
NEAR = 2.0**-40  # docs/definitions.md, "Token equivalence": error of a float64 sampler's uniforms
TIES = "float64 sums: nothing but a tie at the threshold differs"
BINS = "decreasing fits use at most 11/9 of the best number of bins + 1 (Johnson 1973); the best is at least ⌈Σ/max⌉"
BLOCK = 16  # rows of logits in one call of the oracle, since a row's float64 temporaries take a megabyte


def verify(row, side, outputs):
    """Compare the outputs of one side with the oracle.

    Args:
        row: of `rows.rows()`.
        side: "ours" or "theirs".
        outputs: by the op's names, from `worker.prepare`.

    Returns:
        Evidence, all of which must hold.
    """
    ours = side == "ours"
    label = "ours" if ours else row.peer
    return CHECKS[row.op](row, label, outputs, ours=ours)


def _unit(row):
    return K[row.dtype] * 2 * U[row.dtype]


def _advantages(row, label, outputs, *, ours):
    inputs = {**workloads.operands(row.op, row.shape, row.dtype), **row.conventions}
    want, scale = advantages.group_advantages(**inputs), advantages.advantage_scale(**inputs)
    share, because = (_unit(row), ACCURACY) if ours else (SLACK * 2 * U[row.dtype], f"{SLACK:g}·2u: plain sums")
    limit = share * scale + np.spacing(np.abs(want))
    return [within(f"{label}: advantages", outputs["advantages"], want, limit, because)]


def _kl(row, label, outputs, *, ours):
    inputs = workloads.operands(row.op, row.shape)
    want = kl.token_kl(**inputs, **row.conventions)
    if ours:
        limit = _unit(row) * kl.kl_scale(**inputs, **row.conventions) + np.spacing(np.abs(want))
        return [within(f"{label}: k3", outputs["kl"], want, limit, ACCURACY)]
    d = inputs["reference"].astype(np.float64) - inputs["policy"]
    limit = 4 * 2 * U["float32"] * (np.exp(d) + np.abs(d) + 1.0)
    because = AS_WRITTEN
    if row.conventions["reduction"] == "sum":
        tokens = d.shape[1]
        limit = limit.sum(axis=1) + tokens * U["float32"] * kl.kl_scale(**inputs, **row.conventions)
        because = f"{AS_WRITTEN}, and a float32 sum of {tokens} terms"
    return [within(f"{label}: k3", outputs["kl"], want, limit, because)]


@lru_cache(maxsize=4)
def _scores(shape):
    """Return log-probs, their scale and the entropy, float64."""
    logits, ids, _ = workloads.logits(shape)
    blocks = [slice(start, start + BLOCK) for start in range(0, len(ids), BLOCK)]
    parts = [
        [
            logprobs.selective_log_softmax(logits[block], ids[block], temperature=1.0),
            logprobs.logprob_scale(logits[block], ids[block], temperature=1.0),
            logprobs.entropy(logits[block], temperature=1.0),
        ]
        for block in blocks
    ]
    return [np.concatenate(values) for values in zip(*parts, strict=True)]


def _log_softmax(row, label, outputs, *, ours):
    want, scale, entropy = _scores(row.shape)
    share, because = (_unit(row), ACCURACY) if ours else (SHARE, SUMS)
    limit = share * scale + np.spacing(np.abs(want))
    evidence = [within(f"{label}: log-probs", outputs["logprobs"], want, limit, because)]
    if row.conventions["entropy"]:
        spread = share * np.maximum(1.0, entropy)
        evidence.append(within(f"{label}: entropy", outputs["entropy"], entropy, spread, because))
    return evidence


@lru_cache(maxsize=6)
def _kept(shape, top_p, top_k):
    """Return the oracle's log-probs after one filter; at temperature 1 the order of filters does not matter."""
    logits = workloads.logits(shape)[0]
    chosen = {**OFF, "top_p": top_p, "top_k": top_k}
    return np.stack([filters.filtered_logprobs(token_logits, order="hf", **chosen) for token_logits in logits])


def _want(row, *, more=0.0):
    top_p = row.conventions.get("top_p", 1.0)
    return _kept(row.shape, top_p + more if top_p < 1.0 else 1.0, row.conventions.get("top_k", 0))


@lru_cache(maxsize=3)
def _filter_scale(shape):
    """Return the scale |x − M| + max(1, log Σ) of every token's log-probability."""
    logits = workloads.logits(shape)[0].astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.abs(shifted) + np.maximum(1.0, np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def _filtered(row, label, outputs, *, ours):
    got, want = outputs["logprobs"], _want(row)
    if got.shape != want.shape:
        return [within(f"{label}: filtered log-probs", got, want, 1.0, "")]
    kept, wanted = np.isfinite(got), np.isfinite(want)
    base = np.exp(want)
    missing = np.where(wanted & ~kept, base, 0.0).sum(axis=1)
    surplus = (kept & ~wanted).sum(axis=1) * np.where(wanted, base, 1.0).min(axis=1)
    most, why = (NEAR, TIES) if ours else (MASS, BOUNDARY)
    alone = Evidence(f"{label}: probability kept by one alone", float(np.max(missing + surplus)), "<=", most, why)
    both = kept & wanted
    limit, because = (8 * U["float32"] * _filter_scale(row.shape)[both], ACCURACY) if ours else (2 * MASS, MOVED)
    return [alone, within(f"{label}: filtered log-probs", got[both], want[both], limit, because)]


def _drawn(row, label, outputs, *, ours):
    tokens, uniforms = outputs["tokens"], workloads.logits(row.shape)[2]
    places = np.arange(len(uniforms))
    if not ours:
        allowed = np.isfinite(_want(row, more=MASS))
        outside = float(np.sum(~allowed[places, tokens]))
        return [Evidence(f"{label}: drawn tokens that the filter removes", outside, "<=", 0.0, DRAWN)]
    want = _want(row)
    choices = [filters.draw(want, np.clip(uniforms + shift, 0.0, np.nextafter(1, 0))) for shift in (-NEAR, 0, NEAR)]
    unmatched = float(np.sum(~np.any([tokens == choice for choice in choices], axis=0)))
    limit = 8 * U["float32"] * _filter_scale(row.shape)[places, tokens]
    where = 'docs/definitions.md, "Token equivalence", clause 4'
    return [
        Evidence(f"{label}: tokens that are not the oracle's for u within 2^-40", unmatched, "<=", 0.0, where),
        within(f"{label}: behaviour log-probs", outputs["logprobs"], want[places, tokens], limit, ACCURACY),
    ]


def _loss(row, label, outputs, *, ours):
    inputs = {**workloads.operands(row.op, row.shape), **row.conventions}
    for name in ("epsilon_low", "epsilon_high", "beta"):  # rounded once to the dtype of the data
        inputs[name] = float(np.float32(inputs[name]))
    want = losses.policy_loss(**inputs)
    share, because = (_unit(row), ACCURACY) if ours else (SLACK * 2 * U["float32"], "")
    gradient_limit = share * want.gradient_scale + np.spacing(np.abs(want.gradient))
    if not ours:
        because = f"float32 throughout: {SLACK:g}·2u of the row's largest gradient"
        gradient_limit = share * np.max(want.gradient_scale, axis=1, keepdims=True) + 1e-300
    gradient = outputs["gradient"]
    if gradient.shape != want.gradient.shape:
        return [within(f"{label}: gradient", gradient, want.gradient, gradient_limit, because)]
    # Within 16 ulp of a bound of the ratio either branch's gradient is right.
    nearer_other = np.abs(gradient - want.gradient_other) < np.abs(gradient - want.gradient)
    wanted = np.where(want.near_branch & nearer_other, want.gradient_other, want.gradient)
    loss_limit = share * want.loss_scale + want.branch_slack
    return [
        within(f"{label}: loss", np.float64(outputs["loss"]), np.float64(want.loss), loss_limit, because),
        within(f"{label}: gradient", gradient, wanted, gradient_limit, because),
    ]


def _packed(row, label, outputs, *, ours):
    del ours  # both sides have the same limits, since the number of bins depends on ties
    inputs = workloads.operands(row.op, row.shape)
    lengths, most = inputs["lengths"], inputs["max_length"]
    bins = np.split(outputs["indices"], outputs["offsets"][1:-1])
    problems = packing.check_packing(lengths, most, bins)
    least = packing.lower_bound(lengths, most)
    return [
        Evidence(f"{label}: problems of the packing", len(problems), "==", 0.0, "every sequence once, no bin too full"),
        Evidence(f"{label}: bins", len(bins), "<=", 11 / 9 * least + 1, BINS),
    ]


CHECKS = {
    "group_advantages": _advantages,
    "token_kl": _kl,
    "selective_log_softmax": _log_softmax,
    "filtered_logprobs": _filtered,
    "sample_tokens": _drawn,
    "policy_loss": _loss,
    "pack_sequences": _packed,
}
