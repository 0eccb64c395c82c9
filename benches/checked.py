"""Calls of rlkernels, verified against the oracle before anything times them."""

from __future__ import annotations

import functools

import numpy as np

import rlkernels
from benches import timing
from benches.calls import CALLS
from gates import registry
from reference.oracle import advantages, filters, kl, logprobs, losses, packing

ROUNDED = ("epsilon_low", "epsilon_high", "beta")  # once, to the dtype of the data; the oracle gets the rounded value
BLOCK = 16  # rows of a large vocabulary that the oracle gets at once: its float64 temporaries are large
NEAR = (
    1e-5  # of the largest value: for the ops without a limit of their own here, which the gates judge to the last bits
)


class DebugBuildError(RuntimeError):
    """Times of a debug build mean nothing."""


@functools.cache
def prepared(name):
    """Return a call that takes nothing, once per process and verified; and how many numbers it goes through.

    Raises:
        DebugBuildError: rlkernels is no release build.
        AssertionError: its result is wrong.
    """
    profile = rlkernels.build_info()["profile"]
    if profile != "release":
        raise DebugBuildError(f"rlkernels is a {profile} build, must be a release build: run `make setup`")
    call = CALLS[name]()
    function = getattr(rlkernels, call.op)
    run = functools.partial(function, **call.keywords)
    timing.require(_evidence(call, run()))
    return run, call.elements


def _evidence(call, got):
    special = {
        "group_advantages": _advantages,
        "token_kl": _k3,
        "selective_log_softmax": _logprobs,
        "sample_tokens": _drawn,
        "filtered_logprobs": _filtered,
        "policy_loss": _loss,
        "pack_sequences": _packed,
    }
    return special.get(call.op, _near)(call.op, call.keywords, got)


def _limit(dtype, scale, want):
    return timing.K[dtype] * 2 * timing.U[dtype] * scale + np.spacing(np.abs(want))


def _advantages(op, keywords, got):
    want, scale = advantages.group_advantages(**keywords), advantages.advantage_scale(**keywords)
    return [timing.within(op, got, want, _limit("float64", scale, want), timing.ACCURACY)]


def _k3(op, keywords, got):
    want = kl.token_kl(**keywords)
    return [timing.within(op, got, want, _limit("float32", np.abs(want), want), timing.ACCURACY)]


def _logprobs(op, keywords, got):
    logits, ids, entropy = keywords["logits"], keywords["ids"], keywords["entropy"]
    values, found = got if entropy else (got, None), []
    for start in range(0, len(ids), BLOCK):
        rows = slice(start, start + BLOCK)
        want = logprobs.selective_log_softmax(logits[rows], ids[rows], temperature=1.0)
        scale = logprobs.logprob_scale(logits[rows], ids[rows], temperature=1.0)
        found.append(timing.within(op, values[0][rows], want, _limit("float32", scale, want), timing.ACCURACY))
        if entropy:
            want = logprobs.entropy(logits[rows], temperature=1.0)
            limit = _limit("float32", np.maximum(1.0, want), want)
            found.append(timing.within("entropy", values[1][rows], want, limit, timing.ACCURACY))
    return found


def _filters(keywords):
    """Return the oracle's filtered log-probs and what an error of one is measured in: |x − M| + max(1, log Σ)."""
    options = {name: value for name, value in keywords.items() if name not in {"logits", "uniforms"}}
    logits = keywords["logits"].astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    scale = np.abs(shifted) + np.maximum(1.0, np.log(np.exp(shifted).sum(axis=1, keepdims=True)))
    return filters.filtered_logprobs(keywords["logits"], **options), scale


def _filtered(op, keywords, got):
    want, scale = _filters(keywords)
    return [
        timing.within(op, got, want, _limit("float32", scale, np.where(np.isfinite(want), want, 0.0)), timing.ACCURACY)
    ]


def _drawn(op, keywords, got):
    want, scale = _filters(keywords)
    tokens, behaviour = (np.asarray(values) for values in got)
    rows = np.arange(len(tokens))
    limit = _limit("float32", scale[rows, tokens], want[rows, tokens])
    other = float(np.sum(tokens != filters.draw(want, keywords["uniforms"])))
    return [
        timing.Evidence("tokens that are not the oracle's", other, "<=", 0.0, "the same uniforms"),
        timing.within(op, behaviour, want[rows, tokens], limit, timing.ACCURACY),
    ]


def _loss(op, keywords, got):
    want = losses.policy_loss(**{k: float(np.float32(v)) if k in ROUNDED else v for k, v in keywords.items()})
    unit = timing.K["float32"] * 2 * timing.U["float32"]
    other = np.abs(got.gradient - want.gradient_other) < np.abs(got.gradient - want.gradient)
    nearer = np.where(want.near_branch & other, want.gradient_other, want.gradient)
    limit = unit * want.gradient_scale + np.spacing(np.abs(want.gradient))
    return [
        timing.within(op, float(got.loss), want.loss, unit * want.loss_scale + want.branch_slack, timing.ACCURACY),
        timing.within(f"gradient of {op}", got.gradient, nearer, limit, timing.ACCURACY),
    ]


def _packed(op, keywords, got):
    lengths, longest = keywords["lengths"], keywords["max_length"]
    bins = np.split(got[0], got[1][1:-1])
    problems = float(len(packing.check_packing(lengths, longest, bins)))
    most = 11 / 9 * packing.lower_bound(lengths, longest) + 1
    because = "decreasing fits use at most 11/9 of the best number of bins + 1 (Johnson 1973)"
    return [
        timing.Evidence(f"{op}: problems", problems, "==", 0.0, "every sequence once, no bin too full"),
        timing.Evidence(f"{op}: bins", float(len(bins)), "<=", most, because),
    ]


def _near(op, keywords, got):
    found = next(x for gate in registry.load().gates.values() for x in gate.ops if x.name == op)
    want = found.oracle(**keywords)
    want = want.values if op == "ratio_statistics" else want  # beside them the oracle returns their scales
    because = f"{NEAR:g} of the largest value; gates judge it to the last bits"
    return [
        timing.within(op, one, other, NEAR * max(1.0, float(np.max(np.abs(other)))), because)
        for one, other in zip(_arrays(got), _arrays(want), strict=True)
    ]


def _arrays(found):
    """Return a result as float64 arrays: several by name, or one."""
    values = [found[name] for name in sorted(found)] if isinstance(found, dict) else [found]
    return [np.asarray(value, np.float64) for value in values]
