"""Calls of rlkernels, verified against the oracle before anything times them."""

from __future__ import annotations

import functools

import numpy as np

import rlkernels
from benches import limits, timing
from benches.calls import CALLS
from gates import registry
from gates_reference.kernels import KERNELS

NEAR = 1e-5  # of the largest value, for ops without a limit in limits.py, which the gates judge strictly


class DebugBuildError(RuntimeError):
    """A debug build must not be timed."""


@functools.cache
def prepared(name):
    """Return a verified call without arguments, cached per process, and its number of elements.

    Raises:
        DebugBuildError: rlkernels is not a release build.
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
    """Return the results of rlkernels by the op's output names."""
    if call.op == "policy_loss":
        return {"loss": got.loss, "gradient": got.gradient}
    values = got if isinstance(got, tuple) else (got,)
    return dict(zip(KERNELS[call.op].outputs, values, strict=False))


def near(call, got):
    """Compare a result loosely with the oracle's."""
    op = next(x for gate in registry.load().gates.values() for x in gate.ops if x.name == call.op)
    want = op.oracle(**call.keywords)
    want = want.values if call.op == "ratio_statistics" else want  # the oracle also returns their scales
    because = f"{NEAR:g} of the largest value; gates judge it to the last bits"
    return [
        timing.within(call.op, got_part, want_part, NEAR * max(1.0, float(np.max(np.abs(want_part)))), because)
        for got_part, want_part in zip(_arrays(got), _arrays(want), strict=True)
    ]


def _arrays(result):
    """Return a result as a list of float64 arrays, in the order of their names."""
    values = [result[name] for name in sorted(result)] if isinstance(result, dict) else [result]
    return [np.asarray(value, np.float64) for value in values]
