"""Who is timed, the check that comes before timing, and the ratio of two candidates in one process."""

import statistics
import time

import numpy as np

import rlkernels
from gates.subjects import numpy as by_numpy

NAMES = ("rlkernels", "numpy")


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
