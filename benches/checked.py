"""Calls of rlkernels, verified against the oracle before anything times them."""

from __future__ import annotations

import functools

import numpy as np

import rlkernels
from benches import limits, timing
from benches.calls import CALLS
from gates import registry
from reference.kernels import KERNELS

NEAR = 1e-5  # of the largest value: for the ops without a limit in limits.py, which the gates judge to the last bits


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
    run = functools.partial(getattr(rlkernels, call.op), **call.keywords)
    got = run()
    timing.require(limits.verify(call, "ours", outputs(call, got)) if call.shape else near(call, got))
    return run, call.elements


def outputs(call, got):
    """Return what rlkernels returned by the op's names."""
    if call.op == "policy_loss":
        return {"loss": got.loss, "gradient": got.gradient}
    values = got if isinstance(got, tuple) else (got,)
    return dict(zip(KERNELS[call.op].outputs, values, strict=False))


def near(call, got):
    """Compare a result with the oracle's, loosely."""
    op = next(x for gate in registry.load().gates.values() for x in gate.ops if x.name == call.op)
    want = op.oracle(**call.keywords)
    want = want.values if call.op == "ratio_statistics" else want  # beside them the oracle returns their scales
    because = f"{NEAR:g} of the largest value; gates judge it to the last bits"
    return [
        timing.within(call.op, one, other, NEAR * max(1.0, float(np.max(np.abs(other)))), because)
        for one, other in zip(_arrays(got), _arrays(want), strict=True)
    ]


def _arrays(found):
    """Return a result as float64 arrays: several by name, or one."""
    values = [found[name] for name in sorted(found)] if isinstance(found, dict) else [found]
    return [np.asarray(value, np.float64) for value in values]
