"""The sampler of the fast rollouts: `rlkernels` on the CPU, for all rows of a step at once.

It implements the definition in `gates_reference.trainer.sampling` without sharing code with it. Draws are keyed by prompt, sample and
step, so they do not depend on the batch or its order.
"""

from typing import Any, Final

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

import rlkernels
from gates_reference.trainer import sampling
from gates_reference.trainer.rollout import table

Ints = NDArray[np.int64]
Tokens = NDArray[np.int32]
Floats = NDArray[np.float64]

NO_TOKEN: Final = -1


def host(logits: mx.array) -> NDArray[np.float32]:
    """Return the logits (B, V) of a step as a NumPy view; this is the only evaluation of the step.

    Other types are converted to float32 first: NumPy has no bfloat16, and log-probs are defined on float32.
    """
    return np.array(logits.astype(mx.float32), copy=False)


def keywords(settings: sampling.Settings) -> dict[str, Any]:
    """Return the settings as keywords of `rlkernels`."""
    return {
        "order": settings.order,
        "ties": "lower-id",
        "temperature": settings.temperature,
        "top_k": settings.top_k,
        "top_p": settings.top_p,
        "min_p": settings.min_p,
        "xtc_probability": settings.xtc_probability,
        "xtc_threshold": settings.xtc_threshold,
        "repetition_penalty": settings.repetition_penalty,
    }


def logprobs(logits: NDArray[np.float32], tokens: Tokens, temperature: float) -> Floats:
    """Return `x[id]/tau - logsumexp(x/tau)` (R,) of tokens (R,) under logits (R, V), before any penalty or filter."""
    return np.asarray(rlkernels.selective_log_softmax(logits, tokens, temperature=temperature), np.float64)


class Sampler:
    """The draws of one rollout: uniforms and coins of the whole table, and the tokens of each row so far."""

    def __init__(self, request: table.Request, pairs: Ints) -> None:
        """Compute every random number of the rows `pairs` (R, 2) of (prompt, sample)."""
        keys = table.draw_index(pairs, np.arange(len(pairs)))
        counter = (request.seed, request.round, keys[:, :1], keys[:, 1:], np.arange(request.max_tokens)[None, :])
        self.settings = request.settings
        self.uniforms: Floats = np.asarray(rlkernels.uniforms(*counter))
        self.coins: Floats | None = None
        if self.settings.xtc_probability > 0:
            self.coins = np.asarray(rlkernels.xtc_coins(*counter))
        self.history: Ints | None = None
        if self.settings.penalises:
            self.history = _histories(request, pairs)
        self.said = self.history.shape[1] - request.max_tokens if self.history is not None else 0
        self._keywords = keywords(self.settings)

    def draw(self, logits: NDArray[np.float32], chosen: Ints, step: int) -> tuple[Tokens, Floats]:
        """Draw tokens, with their behaviour log-probs, for the `chosen` rows (N,) at `step` from their logits (N, V)."""
        tokens, behaviour = rlkernels.sample_tokens(
            logits,
            self.uniforms[chosen, step],
            xtc_coin=None if self.coins is None else self.coins[chosen, step],
            history=None if self.history is None else self.history[chosen, : self.said + step],
            **self._keywords,
        )
        if self.history is not None:
            self.history[chosen, self.said + step] = tokens
        return np.asarray(tokens, np.int32), np.asarray(behaviour)

    def score(self, logits: NDArray[np.float32], tokens: Tokens, behaviour: Floats) -> sampling.Drawn:
        """Return the three log-probs of drawn tokens; those that are equal by definition are computed once."""
        tau = self.settings.temperature
        plain = self.settings.plain
        model = behaviour if plain and tau == 1 else logprobs(logits, tokens, 1.0)
        if tau == 0:
            temperature_scaled = np.zeros(len(tokens))
        elif plain:
            temperature_scaled = behaviour
        else:
            temperature_scaled = model if tau == 1 else logprobs(logits, tokens, tau)
        return sampling.Drawn(tokens, model, temperature_scaled, behaviour)


def _histories(request: table.Request, pairs: Ints) -> Ints:
    """Return each row's prompt, right-aligned, followed by room for its completion; -1 means no token."""
    longest = max((len(request.prompts[i]) for i in pairs[:, 0]), default=0)
    result = np.full((len(pairs), longest + request.max_tokens), NO_TOKEN, np.int64)
    for row, i in enumerate(pairs[:, 0]):
        prompt = request.prompts[i]
        result[row, longest - len(prompt) : longest] = prompt
    return result
