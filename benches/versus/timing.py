"""Times in turns, and the ratio of their medians with an interval."""

from __future__ import annotations

import statistics
import time
import timeit
from dataclasses import dataclass

import numpy as np

#: A sample lasts at least so long, so that the clock's own 50 ns are below a thousandth.
SAMPLE_S = 2e-4
#: After the other side has run. OpenMP's threads spin before they sleep and hold a core meanwhile: after a call of torch
#: this process used 2.1 ms of processor in a sleep of 2 ms, 3.4 ms in one of 5 or 10 ms (two x86-64 cores).
PAUSE_S = 1e-2
#: An untimed call comes before a sample unless one call takes longer than this: then caches hold nothing of it anyway.
WARM_S = 0.05
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Samples:
    """Seconds per call of one side, one entry for each round."""

    calls: int
    seconds: np.ndarray


def in_turns(statements, names, *, rounds, budget_s, fewest, sample_s=SAMPLE_S):
    """Times every statement once a round, in order, until `rounds` are done or `budget_s` is spent.

    Args:
        statements: what to time, one for each side.
        names: for each statement, what its names mean.
        rounds: how many rounds there shall be at most.
        budget_s: seconds after which no round starts, once `fewest` are done.
        fewest: rounds to run whatever they take.
        sample_s: the least duration of one sample.

    Returns:
        One `Samples` for each statement.
    """
    timers = [timeit.Timer(s, globals=dict(n)) for s, n in zip(statements, names, strict=True)]
    calls = [_calls(timer, sample_s) for timer in timers]
    taken = [[] for _ in timers]
    start = time.perf_counter()
    for done in range(rounds):
        if done >= fewest and time.perf_counter() - start > budget_s:
            break
        for timer, count, seconds in zip(timers, calls, taken, strict=True):
            time.sleep(PAUSE_S)
            if not seconds or min(seconds) < WARM_S:
                timer.timeit(1)
            seconds.append(timer.timeit(count) / count)
    return [Samples(count, np.array(seconds)) for count, seconds in zip(calls, taken, strict=True)]


def ratio(over, under, seed=0):
    """The ratio of medians with its 95% interval, by bootstrap over rounds (both sides of a round together)."""
    picks = np.random.default_rng(seed).integers(0, over.size, (RESAMPLES, over.size))
    ratios = np.median(over[picks], axis=1) / np.median(under[picks], axis=1)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return statistics.median(over) / statistics.median(under), float(low), float(high)


def verdict(low, high, goal, noise=1.0):
    """Say "met" where the whole interval reaches the goal, "missed" where none of it does, else "undecided".

    `noise` is the factor by which one and the same side differed from itself in the same rounds; it widens the interval.
    """
    low, high = low / noise, high * noise
    if low >= goal:
        return "met"
    return "missed" if high < goal else "undecided"


def _calls(timer, sample_s):
    """So many calls that a sample lasts long enough; the first call, which may build or allocate, does not count."""
    timer.timeit(1)
    calls = 1
    while (seconds := min(timer.timeit(calls), timer.timeit(calls))) < sample_s:
        calls = max(calls + 1, int(1.2 * calls * sample_s / max(seconds, 1e-8)))
        if calls > 1 << 20:
            break
    return calls
