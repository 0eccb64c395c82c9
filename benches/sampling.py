"""Top-p and top-k over a vocabulary: the filter alone, and the draw from it."""

import numpy as np

from reference.oracle import filters as oracle

from . import candidates, inputs

SHAPES = ("4x4096-peaked", "16x151936-peaked", "16x151936-flat")
FILTERS = {"top-p 0.95": {"top_p": 0.95}, "top-k 50": {"top_k": 50}}
OFF = {
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
    "xtc_coin": None,
    "repetition_penalty": 1.0,
    "history": None,
}


def chosen(kept):
    """Every keyword of the op; at temperature 1 one filter gives the same in both orders."""
    return OFF | FILTERS[kept] | {"order": "hf", "temperature": 1.0}


def limits(logits):
    """4·2u·(|x − M| + max(1, log Σ)) of every token."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return 8 * 2.0**-24 * (np.abs(shifted) + np.maximum(1.0, np.log(np.exp(shifted).sum(axis=1, keepdims=True))))


@candidates.once
def wanted(shape, kept):
    """The oracle's filtered log-probs and the limits of a difference, of every token."""
    logits = inputs.logits(shape)[0]
    return oracle.filtered_logprobs(logits, **chosen(kept)), limits(logits)


@candidates.once
def filtered(shape, kept, name):
    """The filter as a call to be timed, verified against the oracle."""
    logits = inputs.logits(shape)[0]
    function = candidates.function(name, "filtered_logprobs")
    keywords = chosen(kept)

    def call():
        return function(logits=logits, **keywords)

    (got,) = candidates.results(call(), "logprobs")
    candidates.verify(got, *wanted(shape, kept))
    return call


@candidates.once
def drawn(shape, kept, name):
    """The draw as a call to be timed, verified against the oracle."""
    logits, _, uniforms = inputs.logits(shape)
    function = candidates.function(name, "sample_tokens")
    keywords = chosen(kept)

    def call():
        return function(logits=logits, uniforms=uniforms, **keywords)

    tokens, behaviour = candidates.results(call(), "tokens", "logprobs")
    (want, limit), rows = wanted(shape, kept), np.arange(len(uniforms))
    candidates.verify(tokens, oracle.draw(want, uniforms), 0)
    candidates.verify(behaviour, want[rows, tokens], limit[rows, tokens])
    return call


def sample(call, shape):
    """What one sample calls."""
    rows, vocabulary, _ = inputs.LOGITS[shape]
    return candidates.sample(call, rows * vocabulary)


class Sampling:
    """Time of 131,072 logits, in as many calls as that takes; of one call on more."""

    param_names = ("shape", "filter", "candidate")
    params = (SHAPES, tuple(FILTERS), candidates.NAMES)

    def setup(self, shape, kept, candidate):
        """Build the workload and verify the candidate."""
        self.filtered = sample(filtered(shape, kept, candidate), shape)
        self.drawn = sample(drawn(shape, kept, candidate), shape)

    def time_filtered_logprobs(self, shape, kept, candidate):
        """The filter alone."""
        self.filtered()

    def time_sample_tokens(self, shape, kept, candidate):
        """From logits to tokens."""
        self.drawn()


class SamplingRatio:
    """rlkernels over NumPy; below 1 is faster."""

    param_names = ("shape", "filter")
    params = (SHAPES, tuple(FILTERS))
    unit = "rlkernels / numpy"

    def setup(self, shape, kept):
        """Verify both."""
        self.calls = [drawn(shape, kept, name) for name in candidates.NAMES]

    def track_sample_tokens(self, shape, kept):
        """The ratio of medians, interleaved."""
        return candidates.ratio_of_medians(*self.calls)
