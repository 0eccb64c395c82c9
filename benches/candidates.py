"""Who is timed, the check that comes before timing, how often a sample calls, and the ratio of two candidates."""

import functools
import statistics
import time

import numpy as np

import rlkernels
from gates.subjects.numpy_baseline import subject as by_numpy

NAMES = ("rlkernels", "numpy")
ELEMENTS = 1 << 17  # that one sample goes through, in as many calls as that takes: a call alone may last a microsecond

#: asv sets up anew before every sample, and one process times one benchmark with one set of parameters: what is built from
#: the same names is built and verified once.
once = functools.cache


def load(name):
    """The module with the candidate's functions; refuses a debug build, whose times mean nothing."""
    profile = rlkernels.build_info()["profile"]
    if profile != "release":
        raise RuntimeError(f"rlkernels is a {profile} build, must be a release build: run `make setup`")
    return {"rlkernels": rlkernels, "numpy": by_numpy}[name]


def function(name, op):
    """The candidate's function of an op, called with the op's keywords; NotImplementedError, n/a, where it has none."""
    module = load(name)
    found = module.OPS.get(op) if name == "numpy" else getattr(module, op, None)
    if found is None:
        raise NotImplementedError(f"{name} has no {op}")
    return found


def results(returned, *names):
    """What a candidate returned, by the op's outputs: NumPy's come as a dictionary, a loss as an object, others plain."""
    if isinstance(returned, dict):
        return [returned[name] for name in names]
    if isinstance(returned, tuple):
        return list(returned[: len(names)])
    return [returned] if len(names) == 1 else [getattr(returned, name) for name in names]


def verify(got, want, limit):
    """A wrong answer is a failed measurement, however fast it came."""
    same = got == want  # infinities that are equal have no difference
    with np.errstate(invalid="ignore"):
        excess = float(np.max(np.where(same, -np.inf, np.abs(got - want) - limit), initial=-np.inf))
    if not (got.shape == want.shape and excess <= 0):
        raise AssertionError(f"the candidate is {excess:.3g} beyond its limit, must be within it")


def sample(call, elements):
    """As many calls as go through `ELEMENTS` elements, at least one: what a `time_` method times as one sample.

    asv times a single call where a benchmark has a `setup` (asv#966), and a clock cannot tell the microsecond that one call
    of a small shape takes from what comes before it.
    """
    turns = [None] * max(1, ELEMENTS // elements)

    def several():
        for _ in turns:
            call()

    return several


def ratio_of_medians(first, second, rounds=15, seconds=0.02):
    """Median time of `first` over that of `second`, measured in turns so that a busy machine hits both alike."""
    calls = max(1, int(seconds / max(_seconds(first, 1), _seconds(second, 1), 1e-9)))
    pairs = [(_seconds(first, calls), _seconds(second, calls)) for _ in range(rounds)]
    return statistics.median(a for a, _ in pairs) / statistics.median(b for _, b in pairs)


def _seconds(function, calls):
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls
