"""Verify results, time two sides alternately, and estimate their ratio with an interval.

Only NumPy is imported here, since a peer's interpreter loads this file by path; `paired_ratio` imports SciPy in the judge.
"""

from __future__ import annotations

import math
import time
import timeit
from dataclasses import dataclass

import numpy as np

#: Least duration of a sample, so that the clock's 50 ns are below a thousandth.
SAMPLE_S = 2e-4
#: Pause after the other side. OpenMP's threads spin on a core before they sleep: after a call of torch this process used
#: 2.1 ms of processor in a sleep of 2 ms, 3.4 ms in one of 5 or 10 ms (two x86-64 cores).
PAUSE_S = 1e-2
#: Untimed calls precede a sample unless one call takes longer than this, which evicts the caches anyway.
WARM_S = 0.05
#: Duration of the untimed calls on every side. A virtual processor that slept takes time to return, and Linux wakes a
#: second thread on the caller's processor until its balancing parts them: after 5 ms of calls a kernel of 65 µs on two
#: threads took 104 in the median and 49 to 210 from one sample to the next, after 40 ms 59 to 70; torch likewise.
AWAKE_S = 4e-2
#: A single call of this duration is a sample.
SLOW_S = 0.5
#: Contention only adds to a time, so a low quantile of a process's samples varies less than their median (by 3% instead
#: of 6% for 5.8 µs under a load of 2 to 4; ../shared/design/benchmarks.md).
LOW = 0.1
RESAMPLES = 2000
#: Ratios closer to 1 are `same`, however narrow the interval, since memory layout alone changes a microsecond by 1 to 2%.
FLOOR = 0.02
U = {"float32": 2.0**-24, "float64": 2.0**-53}
K = {"float32": 4, "float64": 8}  # docs/definitions.md, "Accuracy"
ACCURACY = "derived: k·2u·S, k = 4 for float32, 8 for float64"


# ---------------------------------------------------------------- verify


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number and its limit, the fields of `gates.results.records.EvidenceRecord`."""

    quantity: str
    observed: float
    relation: str
    limit: float
    because: str

    @property
    def holds(self):
        """Whether the relation holds; NaN never satisfies it."""
        return {"<=": self.observed <= self.limit, "==": self.observed == self.limit}[self.relation]


def within(quantity, got, want, limit, because):
    """Return the largest error in units of its limit, which must be at most 1; infinite for another shape.

    Args:
        quantity: description of the compared array.
        got: array of the side.
        want: array of the oracle, float64.
        limit: array or number, the largest absolute error of each element.
        because: the reason of the limit.
    """
    got, want = np.asarray(got), np.asarray(want)
    name = f"{quantity}, error over limit"
    if got.shape != want.shape:
        return Evidence(name, math.inf, "<=", 1.0, f"shape {got.shape}, must be {want.shape}")
    same = (got == want) | (np.isnan(got) & np.isnan(want))  # equal infinities have no difference
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(same, 0.0, np.abs(got.astype(np.float64) - want) / limit)
    return Evidence(name, float(np.max(share, initial=0.0)), "<=", 1.0, because)


def require(evidence):
    """Raise if an item does not hold, since a wrong answer is a failed measurement.

    Raises:
        AssertionError: names the first item that fails.
    """
    for item in evidence:
        if not item.holds:
            raise AssertionError(f"{item.quantity} is {item.observed:.6g}, must be {item.relation} {item.limit:g}")


# ---------------------------------------------------------------- interleave


@dataclass(frozen=True, slots=True)
class Samples:
    """Seconds per call of one side, one entry for each round; each sample is the mean of `calls` calls."""

    calls: int
    seconds: np.ndarray

    @property
    def low(self):
        """Return the 10% quantile."""
        return float(np.quantile(self.seconds, LOW))


def in_turns(statements, names, *, rounds, budget_s, fewest=2, sample_s=SAMPLE_S, pause_s=PAUSE_S):
    """Time every statement once a round, in reverse order in every second round, so that two rounds are ABBA.

    Args:
        statements: one for each side.
        names: the namespace of each statement.
        rounds: most rounds.
        budget_s: seconds after which no further round starts, once `fewest` are done.
        fewest: least rounds.
        sample_s: the least duration of one sample.
        pause_s: pause before a sample in which other threads fall asleep.

    Returns:
        One `Samples` for each statement, all of the same even number of rounds.
    """
    timers = [timeit.Timer(s, globals=dict(n)) for s, n in zip(statements, names, strict=True)]
    calls, quickest = zip(*(_calls(timer, sample_s) for timer in timers), strict=True)
    taken = [[] for _ in timers]
    start = time.perf_counter()
    for done in range(0, rounds, 2):
        if done >= fewest and time.perf_counter() - start > budget_s:
            break
        forth = list(range(len(timers)))
        for i in (*forth, *reversed(forth)):
            time.sleep(pause_s)
            if min([quickest[i], *taken[i]]) < WARM_S:
                _wake(timers[i])
            taken[i].append(timers[i].timeit(calls[i]) / calls[i])
    return [Samples(count, np.array(seconds)) for count, seconds in zip(calls, taken, strict=True)]


def _wake(timer):
    """Call until `AWAKE_S` have passed, at least once."""
    end = time.perf_counter() + AWAKE_S
    timer.timeit(1)
    while time.perf_counter() < end:
        timer.timeit(1)


def _calls(timer, sample_s):
    """Return the number of calls of a sufficiently long sample, and the seconds of one call.

    The first call, which may build or allocate, does not count.
    """
    timer.timeit(1)
    calls = 1
    if (seconds := timer.timeit(1)) > SLOW_S:
        return calls, seconds
    while (seconds := min(timer.timeit(calls), timer.timeit(calls))) < sample_s:
        calls = max(calls + 1, int(1.2 * calls * sample_s / max(seconds, 1e-8)))
        if calls > 1 << 20:
            break
    return calls, seconds / calls


# ---------------------------------------------------------------- interval


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of paired ratios with its 95% interval."""

    value: float
    low: float
    high: float

    def excludes_one(self):
        """Return whether 1 lies outside the interval."""
        return self.low > 1.0 or self.high < 1.0


def paired_ratio(over, under, seed=0):
    """Return the median of `over[i] / under[i]` with a percentile bootstrap interval over the pairs.

    Args:
        over: seconds (n,), one for each pair.
        under: seconds (n,) of the other side in the same pairs.
        seed: of the resampling; the same samples give the same interval.
    """
    from scipy import stats

    logs = np.log(np.asarray(over, float) / np.asarray(under, float))
    value = float(np.exp(np.median(logs)))
    if logs.size < 2 or np.ptp(logs) == 0.0:
        return Ratio(value, value, value) if logs.size > 1 else Ratio(value, 0.0, math.inf)
    bootstrap = stats.bootstrap(
        (logs,), np.median, n_resamples=RESAMPLES, method="percentile", rng=np.random.default_rng(seed)
    ).confidence_interval
    return Ratio(value, float(np.exp(bootstrap.low)), float(np.exp(bootstrap.high)))


def control_ratio(seconds):
    """Return one side over itself: the first round of each ABBA block over the second.

    Args:
        seconds: (2n,) of one side, in the order of the samples.
    """
    seconds = np.asarray(seconds, float)
    return paired_ratio(seconds[0::2], seconds[1::2])


def verdict(ratio, control, floor=FLOOR):
    """Interpret a ratio of times (new over old).

    `slower` or `faster` need an interval without 1 and an effect above the floor. If the control, the same
    code over itself, has an effect above the floor too, the result is undecided.

    Args:
        ratio: of the two sides.
        control: of one side over itself in the same pairs.
        floor: the least relative effect that counts.

    Returns:
        "slower", "faster", "same" or "undecided".
    """

    def counts(candidate):
        return candidate.excludes_one() and abs(math.log(candidate.value)) > math.log1p(floor)

    if not counts(ratio):
        return "same"
    if counts(control):
        return "undecided"
    return "slower" if ratio.value > 1.0 else "faster"


def alone(call, seconds, extra=0.0, sample_s=SAMPLE_S):
    """Return the 10% quantile of a call's seconds, from samples of one process without a pause.

    Args:
        call: without arguments.
        seconds: duration of the sampling.
        extra: an artificial slowdown as a share of the work: 0.05 makes 21 calls but counts 20.
        sample_s: the least duration of one sample.
    """
    timer = timeit.Timer("call()", globals={"call": call})
    calls, _ = _calls(timer, sample_s)
    if extra:
        calls = max(calls, math.ceil(1 / extra))
    taken, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(taken) < 3:
        taken.append(timer.timeit(calls + round(extra * calls)) / calls)
    return float(np.quantile(taken, LOW))
