"""Schulman's k3 of float32 log-probabilities."""

from __future__ import annotations

from functools import cache

import numpy as np

from benches import inputs
from benches.versus import proof
from benches.versus.model import Row, Side
from reference.oracle import kl as oracle

OP = "token_kl k3 float32"
RLOX_GOALS = {"1x128": 2.0, "1x2048": 6.0, "32x512": 8.0, "32x2048": 10.0}
GOAL = 2.0
EXP = 20  # operations of a float32 exponential: reduction by two products, seven steps of Horner, scaling
FLOPS = EXP + 3
AS_WRITTEN = "float32 rounding of exp(d) − d − 1 as written, 4·2u·(e^d + |d| + 1) per token"


def rows():
    """Every shape against rlox (sums per sequence), torch and NumPy (per token)."""
    found = []
    for shape, (batch, tokens) in inputs.LOG_PROBABILITIES.items():
        common = {
            "needs": ("token_kl",),
            "reads": 8 * batch * tokens,
            "flops": float(FLOPS * batch * tokens),
            "quick": shape == "1x128",
        }
        found.append(
            Row(
                f"{OP}, sum per sequence",
                shape,
                "rlox",
                lambda shape=shape: _ours(shape, "sum"),
                (lambda shape=shape: _rlox(shape, swapped=False), lambda shape=shape: _rlox(shape, swapped=True)),
                goal=RLOX_GOALS.get(shape),
                writes=4 * batch,
                **common,
            )
        )
        for name, side in (("torch", _torch), ("NumPy", _numpy)):
            ours, theirs = lambda shape=shape: _ours(shape, "none"), lambda side=side, shape=shape: side(shape)
            writes = 4 * batch * tokens
            found.append(Row(f"{OP}, per token", shape, name, ours, (theirs,), goal=GOAL, writes=writes, **common))
    return sorted(found, key=lambda row: row.op)


@cache
def _want(shape, reduction):
    policy, reference = inputs.log_probabilities(shape)
    chosen = {"estimator": "k3", "mask": None, "lengths": None, "reduction": reduction}
    return [f(policy, reference, **chosen) for f in (oracle.token_kl, oracle.kl_scale)]


def _written(shape):
    policy, reference = (values.astype(np.float64) for values in inputs.log_probabilities(shape))
    d = reference - policy
    return 8 * 2.0**-24 * (np.exp(d) + np.abs(d) + 1.0)


def _ours(shape, reduction):
    import rlkernels

    policy, reference = inputs.log_probabilities(shape)
    options = "" if reduction == "none" else f', reduction="{reduction}"'
    names = {"token_kl": rlkernels.token_kl, "policy": policy, "reference": reference}
    statement = f'token_kl(policy, reference, estimator="k3"{options})'
    return Side(statement, names, proof.ours(f"k3 ({reduction})", "float32", *_want(shape, reduction)))


def _rlox(shape, *, swapped):
    from rlox import _rlox_core

    policy, reference = (values.reshape(-1) for values in inputs.log_probabilities(shape))
    tokens = inputs.LOG_PROBABILITIES[shape][1]
    want, scale = _want(shape, "sum")
    limit = _written(shape).sum(axis=1) + tokens * 2.0**-24 * scale
    because = f"{AS_WRITTEN}, and a float32 sum of {tokens} terms"
    order = "reference, policy" if swapped else "policy, reference"
    quantity = f"rlox: k3 of ({order})"
    note = (
        "documented as k3 of (policy, reference) and computes it of (reference, policy): with the arguments as documented "
        "it is refused; timed with them swapped, which computes the op"
    )
    return Side(
        f"compute_batch_token_kl_schulman_f32({order}, {tokens})",
        {
            "compute_batch_token_kl_schulman_f32": _rlox_core.compute_batch_token_kl_schulman_f32,
            "policy": policy,
            "reference": reference,
        },
        lambda got: [proof.within(quantity, got, want, limit, because)],
        note if swapped else "",
    )


def _numpy(shape):
    policy, reference = inputs.log_probabilities(shape)
    names = {"np": np, "policy": policy, "reference": reference}
    return Side("np.exp(d := reference - policy) - d - 1", names, _per_token(shape, "NumPy", lambda got: got))


def _torch(shape):
    import torch

    policy, reference = (torch.from_numpy(values) for values in inputs.log_probabilities(shape))
    names = {"torch": torch, "policy": policy, "reference": reference}
    verify = _per_token(shape, "torch", lambda got: got.numpy())
    return Side("torch.exp(d := reference - policy) - d - 1", names, verify)


def _per_token(shape, name, to_numpy):
    want, limit = _want(shape, "none")[0], _written(shape)
    return lambda got: [proof.within(f"{name}: k3 per token", to_numpy(got), want, limit, AS_WRITTEN)]
