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
#: Untimed calls come before a sample unless one call takes longer than this: then caches hold nothing of it anyway.
WARM_S = 0.05
#: They go on for so long, for every side alike: a virtual processor that slept takes a while to come back, and a call that
#: shares its work between two threads waits for it. One call of 0.6 ms took 1.2 ms as the second one after a pause.
AWAKE_S = 5e-3
#: One call of so long is a sample, whatever disturbed it.
SLOW_S = 0.5
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Samples:
    """Seconds per call of one side, one entry for each round."""

    calls: int
    seconds: np.ndarray

    def first(self, rounds):
        """Return those of the first rounds."""
        return Samples(self.calls, self.seconds[:rounds])


def in_turns(statements, names, *, rounds, budget_s, fewest, sample_s=SAMPLE_S):
    """Times every statement once a round, in order, until `rounds` are done or the budget is spent.

    The first and the last (ours, and ours again) are in every round. Each of those between has the budget to itself, and
    leaves when it and these two have spent it: slow ones so have fewer rounds than quick ones, the first ones.

    Args:
        statements: what to time, one for each side.
        names: for each statement, what its names mean.
        rounds: how many rounds there shall be at most.
        budget_s: seconds after which a side takes no further turn, once `fewest` rounds are done.
        fewest: rounds to run whatever they take.
        sample_s: the least duration of one sample.

    Returns:
        One `Samples` for each statement.
    """
    timers = [timeit.Timer(s, globals=dict(n)) for s, n in zip(statements, names, strict=True)]
    calls, quickest = zip(*(_calls(timer, sample_s) for timer in timers), strict=True)
    taken = [[] for _ in timers]
    spent = [0.0] * len(timers)
    always = {0, len(timers) - 1}
    compared = set(range(len(timers))) - always or always
    for done in range(rounds):
        due = {i for i in compared if done < fewest or sum(spent[j] for j in always | {i}) <= budget_s}
        if not due:
            break
        for i in sorted(always | due):
            start = time.perf_counter()
            time.sleep(PAUSE_S)
            if min([quickest[i], *taken[i]]) < WARM_S:
                _wake(timers[i])
            taken[i].append(timers[i].timeit(calls[i]) / calls[i])
            spent[i] += time.perf_counter() - start
    return [Samples(count, np.array(seconds)) for count, seconds in zip(calls, taken, strict=True)]


def _wake(timer):
    """Call until `AWAKE_S` have passed, at least once."""
    end = time.perf_counter() + AWAKE_S
    timer.timeit(1)
    while time.perf_counter() < end:
        timer.timeit(1)


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
    """So many calls that a sample lasts long enough, and the seconds of one of them.

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
