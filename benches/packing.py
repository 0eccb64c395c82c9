"""Packing sequences into bins, first fit and best fit."""

import numpy as np

from reference.oracle import packing as oracle

from . import candidates, inputs

STRATEGIES = ("first-fit-decreasing", "best-fit-decreasing")
EXACT = 2_000  # sequences up to which the oracle's own packing, which is quadratic, is waited for


@candidates.once
def prepared(shape, strategy, name):
    """The call to be timed; its packing is valid, close to the least number of bins, and that of the oracle if small."""
    lengths = inputs.lengths(shape)
    function = candidates.function(name, "pack_sequences")

    def call():
        return function(lengths=lengths, max_length=inputs.LONGEST, strategy=strategy)

    try:
        indices, offsets = candidates.results(call(), "indices", "offsets")
    except TypeError as error:
        raise NotImplementedError(f"{name}: {error}") from error
    bins = np.split(indices, offsets[1:-1])
    problems = oracle.check_packing(lengths, inputs.LONGEST, bins)
    # Johnson (1973): 11/9 of the least number of bins + 1, and that is at least the lower bound.
    most = 11 / 9 * oracle.lower_bound(lengths, inputs.LONGEST) + 1
    if len(lengths) <= EXACT:
        own = {"first-fit-decreasing": "first_fit_decreasing", "best-fit-decreasing": "best_fit_decreasing"}[strategy]
        most = len(getattr(oracle, own)(lengths, inputs.LONGEST))
    if problems or len(bins) > most:
        raise AssertionError(f"{name} packs {len(bins)} bins, must be at most {most}, without problems: {problems[:3]}")
    return call


class Packing:
    """Time of 131 calls; NumPy's own packing is quadratic, so it is timed on few sequences only."""

    param_names = ("strategy", "candidate")
    params = (STRATEGIES, candidates.NAMES)

    def setup(self, strategy, candidate):
        """Build the workload and verify the candidate."""
        self.calls = candidates.sample(prepared("1000", strategy, candidate), inputs.LENGTHS["1000"])

    def time_pack_sequences(self, strategy, candidate):
        """A thousand sequences in each."""
        self.calls()


class PackingLarge:
    """Time of one call on many sequences; rlkernels alone."""

    param_names = ("sequences", "strategy")
    params = (("100000", "1000000"), STRATEGIES)

    def setup(self, sequences, strategy):
        """Build the workload and verify."""
        self.call = prepared(sequences, strategy, "rlkernels")

    def time_pack_sequences(self, sequences, strategy):
        """One call."""
        self.call()


class PackingRatio:
    """rlkernels over NumPy; below 1 is faster."""

    param_names = ("strategy",)
    params = (STRATEGIES,)
    unit = "rlkernels / numpy"

    def setup(self, strategy):
        """Verify both."""
        self.calls = [prepared("1000", strategy, name) for name in candidates.NAMES]

    def track_pack_sequences(self, strategy):
        """The ratio of medians, interleaved."""
        return candidates.ratio_of_medians(*self.calls)
