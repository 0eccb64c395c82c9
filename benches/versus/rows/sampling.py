"""Top-p and top-k over a large vocabulary: the filter alone, and from logits to a drawn token."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np

from benches import inputs
from benches.versus import proof
from benches.versus.model import Evidence, Row, Side
from benches.versus.rows.kl import EXP
from reference.oracle import filters as oracle

SHAPES = ("4x4096-peaked", "16x151936-peaked", "16x151936-flat")
FILTERS = {"top-p 0.95": {"top_p": 0.95}, "top-k 50": {"top_k": 50}}
#: Per token: top-p needs every probability; top-k needs one comparison, for what it removes has no weight.
FLOPS = {"top-p 0.95": EXP + 4, "top-k 50": 1}
GOAL = 5.0
NORMALISED = "transformers, then log_softmax"  # the same result as ours, in float32
PEERS = {"mlx_lm": "mlx-lm", "transformers": "hf", NORMALISED: "hf"}  # and the order of filters that is theirs
OFF = {
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
    "xtc_coin": None,
    "repetition_penalty": 1.0,
    "history": None,
}
MASS = 2e-3
BOUNDARY = "a peer sums float32 probabilities, MLX one after the other: tokens at the threshold differ, up to this mass"
MOVED = "the mass that a boundary moves, over the 0.95 that is left, is an error of every log-prob"
LESS = "the filter alone: it leaves scores that are not normalised; ours writes normalised log-probs, in float32 as it does"
SAME = "the same result as ours, both in float32"
DRAWN = "a random draw must come from what the oracle keeps, tokens within 2e-3 of the threshold included"
NEAR = 2.0**-40  # docs/definitions.md, "Token equivalence": a float64 sampler's uniforms may be this far off


def rows():
    """Each filter and each way against mlx_lm and transformers.

    A filter of theirs leaves scores in float32 that are not normalised, ours writes normalised log-probs, here into a
    float32 array: more work, as many bytes. With log_softmax after the filter both sides compute the same thing.
    """
    ways = itertools.product((True, False), FILTERS, SHAPES, PEERS)
    return [
        _row(shape, kept, peer, whole=whole) for whole, kept, shape, peer in ways if not whole or peer != NORMALISED
    ]


def _row(shape, kept, peer, *, whole):
    rows, vocabulary, _ = inputs.LOGITS[shape]
    function = "sample_tokens" if whole else "filtered_logprobs"
    return Row(
        f"{function} {kept} float32",
        shape,
        peer,
        lambda: _ours(shape, kept, peer, whole=whole),
        (lambda: _theirs(shape, kept, peer, whole=whole),),
        needs=(function,),
        goal=None if shape == "4x4096-peaked" else GOAL,
        reads=4 * rows * vocabulary,
        writes=16 * rows if whole else 4 * rows * vocabulary,
        flops=float(FLOPS[kept] * rows * vocabulary),
        quick=shape == "4x4096-peaked",
    )


@cache
def _inputs(shape):
    return inputs.logits(shape)


@cache
def _want(shape, kept, *, top_p_more=0.0):
    """The oracle's log-probs; both orders are the same for one filter at temperature 1."""
    chosen = OFF | FILTERS[kept]
    if "top_p" in FILTERS[kept]:
        chosen["top_p"] += top_p_more
    logits = _inputs(shape)[0]
    return np.stack([oracle.filtered_logprobs(row, order="hf", temperature=1.0, **chosen) for row in logits])


@cache
def _scale(shape):
    """|x − M| + max(1, log Σ) of every token: what an error of a log-probability is measured in."""
    logits = _inputs(shape)[0].astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.abs(shifted) + np.maximum(1.0, np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def _ours(shape, kept, peer, *, whole):
    import rlkernels

    logits, _, uniforms = _inputs(shape)
    ((option, value),) = FILTERS[kept].items()
    options = f'order="{PEERS[peer]}", temperature=1.0, {option}={value}'
    if not whole:
        scores = np.empty(logits.shape, np.float32)
        names = {"filtered_logprobs": rlkernels.filtered_logprobs, "logits": logits, "scores": scores}
        return Side(f"filtered_logprobs(logits, {options}, out=scores)", names, lambda got: _filtered(shape, kept, got))
    names = {"sample_tokens": rlkernels.sample_tokens, "logits": logits, "uniforms": uniforms}

    def verify(got):
        tokens, behaviour = (np.asarray(values) for values in got)
        want, rows = _want(shape, kept), np.arange(len(uniforms))
        allowed = [oracle.draw(want, np.clip(uniforms + shift, 0.0, np.nextafter(1, 0))) for shift in (-NEAR, 0, NEAR)]
        other = float(np.sum(~np.any([tokens == choice for choice in allowed], axis=0)))
        limit = 8 * 2.0**-24 * _scale(shape)[rows, tokens]
        return [
            Evidence(
                "ours: tokens that are not the oracle's for u within 2^-40",
                other,
                "<=",
                0.0,
                'docs/definitions.md, "Token equivalence", clause 4',
            ),
            proof.within("ours: behaviour log-probs", behaviour, want[rows, tokens], limit, proof.ACCURACY),
        ]

    return Side(f"sample_tokens(logits, uniforms, {options})", names, verify)


def _filtered(shape, kept, got):
    want = _want(shape, kept)
    both = np.isfinite(got) & np.isfinite(want)
    found = _kept("ours", want, np.isfinite(got), 2.0**-40, "float64 sums: nothing but a tie at the threshold differs")
    limit = 8 * 2.0**-24 * _scale(shape)[both]
    return [*found, proof.within("ours: filtered log-probs", got[both], want[both], limit, proof.ACCURACY)]


def _kept(name, want, kept, most, because):
    """The probability, largest over rows, of the tokens that one keeps and the other does not."""
    base = np.exp(want)
    missing = np.where(np.isfinite(want) & ~kept, base, 0.0).sum(axis=1)
    surplus = (kept & ~np.isfinite(want)).sum(axis=1) * np.where(np.isfinite(want), base, 1.0).min(axis=1)
    return [Evidence(f"{name}: probability kept by one alone", float(np.max(missing + surplus)), "<=", most, because)]


def _theirs(shape, kept, peer, *, whole):
    statement, names, note = {"mlx_lm": _mlx_lm, "transformers": _transformers, NORMALISED: _normalised}[peer](
        shape, kept, whole=whole
    )
    if not whole:

        def filtered(got):
            got, want = np.asarray(got), _want(shape, kept)
            found = _kept(peer, want, np.isfinite(got), MASS, BOUNDARY)
            if peer == NORMALISED:
                both = np.isfinite(got) & np.isfinite(want)
                worst = float(np.max(np.abs(got[both] - want[both])))
                found.append(Evidence(f"{peer}: error of the log-probs", worst, "<=", 2 * MASS, MOVED))
            return found

        return Side(statement, names, filtered, f"{note}; {SAME if peer == NORMALISED else LESS}")

    def drawn(got):
        tokens = np.asarray(got).reshape(-1)
        allowed = np.isfinite(_want(shape, kept, top_p_more=MASS))
        outside = float(np.sum(~allowed[np.arange(tokens.size), tokens]))
        return [Evidence(f"{peer}: drawn tokens that the filter removes", outside, "<=", 0.0, DRAWN)]

    return Side(statement, names, drawn, f"{note}; it draws with its own generator, ours takes uniforms as input")


def _mlx_lm(shape, kept, *, whole):
    import mlx.core as mx
    from mlx_lm import sample_utils

    def evaluated(array):
        mx.eval(array)
        return array

    logits = evaluated(mx.array(_inputs(shape)[0]))
    normalised = "logits - mx.logsumexp(logits, axis=-1, keepdims=True)"
    names = {"mx": mx, "evaluated": evaluated, "logits": logits}
    note = "mlx_lm.sample_utils after the normalisation of generate_step"
    if whole:
        names["sampler"] = sample_utils.make_sampler(temp=1.0, **FILTERS[kept])
        return f"evaluated(sampler({normalised}))", names, note
    ((option, value),) = FILTERS[kept].items()
    names[f"apply_{option}"] = getattr(sample_utils, f"apply_{option}")
    return f"evaluated(apply_{option}({normalised}, {value}))", names, note


def _transformers(shape, kept, *, whole):
    import torch
    from transformers import TopKLogitsWarper, TopPLogitsWarper

    warper = TopPLogitsWarper(0.95) if "top_p" in FILTERS[kept] else TopKLogitsWarper(50)
    names = {"torch": torch, "warper": warper, "logits": torch.from_numpy(_inputs(shape)[0])}
    note = f"transformers' {type(warper).__name__}"
    if whole:
        note += ", softmax and multinomial, as its generate() does"
        return "torch.multinomial(torch.softmax(warper(None, logits), dim=-1), num_samples=1)", names, note
    return "warper(None, logits)", names, note


def _normalised(shape, kept, *, whole):
    statement, names, note = _transformers(shape, kept, whole=whole)
    return f"torch.log_softmax({statement}, dim=-1)", names, f"{note}, then torch.log_softmax"
