"""Log-probabilities of chosen tokens from float32 logits, with and without the entropy."""

import numpy as np

from reference.oracle import logprobs as oracle

from . import candidates, inputs

SMALL = ("4x4096-peaked", "16x151936-flat")
LARGE = ("256x151936-flat",)
BLOCK = 16  # rows that the oracle gets at once: its float64 temporaries are large


@candidates.once
def prepared(shape, entropy, name):
    """The call to be timed, verified against the oracle."""
    logits, ids, _ = inputs.logits(shape)
    function = candidates.function(name, "selective_log_softmax")

    def call():
        return function(logits=logits, ids=ids, temperature=1.0, entropy=entropy)

    unit = 4 * 2 * 2.0**-24
    names = ("logprobs", "entropy") if entropy else ("logprobs",)
    got = candidates.results(call(), *names)
    for start in range(0, len(ids), BLOCK):
        rows = slice(start, start + BLOCK)
        want = oracle.selective_log_softmax(logits[rows], ids[rows], temperature=1.0)
        scale = oracle.logprob_scale(logits[rows], ids[rows], temperature=1.0)
        candidates.verify(got[0][rows], want, unit * scale)
        if entropy:
            want = oracle.entropy(logits[rows], temperature=1.0)
            candidates.verify(got[1][rows], want, unit * np.maximum(1.0, want))
    return call


class SelectiveLogSoftmax:
    """Time of 131,072 logits, in as many calls as that takes; of one call on more."""

    param_names = ("shape", "entropy", "candidate")
    params = (SMALL, (False, True), candidates.NAMES)

    def setup(self, shape, entropy, candidate):
        """Build the workload and verify the candidate."""
        rows, vocabulary, _ = inputs.LOGITS[shape]
        self.calls = candidates.sample(prepared(shape, entropy, candidate), rows * vocabulary)

    def time_selective_log_softmax(self, shape, entropy, candidate):
        """All calls."""
        self.calls()


class SelectiveLogSoftmaxLarge:
    """Time of one call over a batch that no cache holds; rlkernels alone, for NumPy takes seconds."""

    param_names = ("shape", "entropy")
    params = (LARGE, (False, True))

    def setup(self, shape, entropy):
        """Build the workload and verify."""
        self.call = prepared(shape, entropy, "rlkernels")

    def time_selective_log_softmax(self, shape, entropy):
        """One call."""
        self.call()


class SelectiveLogSoftmaxRatio:
    """rlkernels over NumPy; below 1 is faster."""

    param_names = ("shape", "entropy")
    params = (SMALL, (False, True))
    unit = "rlkernels / numpy"

    def setup(self, shape, entropy):
        """Verify both."""
        self.calls = [prepared(shape, entropy, name) for name in candidates.NAMES]

    def track_selective_log_softmax(self, shape, entropy):
        """The ratio of medians, interleaved."""
        return candidates.ratio_of_medians(*self.calls)
