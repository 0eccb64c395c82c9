"""Are two rollout paths token-equivalent? The clauses of docs/definitions.md, "Token equivalence"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from gates.model import Array
from gates_reference.oracle import sampling
from gates_reference.oracle.sampling import Sampling

ETA_FLOAT64_SAMPLER = 2.0**-40  # clause 4: error of a float64 sampler's sums
SLACK = 8.0  # clause 10: allowed differences beyond λ + 5√λ


@dataclass(slots=True)
class Comparison:
    """Counts over all rows compared so far."""

    limit: float  # E of clause 2, in nats
    choice: Mapping[str, Any]  # temperature, top_p, …
    draws: int = 0
    differences: int = 0  # rows cut at a first differing token
    unexplained: int = 0
    expected: float = 0.0  # λ of clause 9
    largest_error: float = 0.0  # e_t of clause 2, in nats; scaled where a row has its own limit
    wrong_uniforms: int = 0
    first: str = ""
    ends: set[int] = field(default_factory=set)
    early: int = 0
    unended: int = 0
    entropy_sum: float = 0.0
    prompt_lengths: set[int] = field(default_factory=set)

    @property
    def allowed(self) -> float:
        """The largest plausible number of honest differences; 0 if the logits are bit-equal."""
        return self.expected + 5.0 * self.expected**0.5 + SLACK if self.expected else 0.0

    @property
    def mean_entropy(self) -> float:
        """Mean entropy of the slow path's untempered distribution, in nats."""
        return self.entropy_sum / max(1, self.draws)

    def add(
        self,
        slow: Mapping[str, Any],
        fast: Mapping[str, Any],
        *,
        seed: int,
        round_: int,
        gaps: Callable[[], Array | None] = lambda: None,
        noise: Callable[[], Array | None] = lambda: None,
    ) -> None:
        """Compare two recorded rollouts of the same rows, position by position up to the first difference.

        `gaps` returns the router gaps (R, T) of the slow path, and is called if anything is unexplained: by clause 8 a row is
        cut, and counted as explained, at a gap within the limit, where other experts may have been chosen. `noise` returns
        the slow path's own errors (R, T) against float64, and is called if any e_t exceeds the limit: recurrent layers have
        a heavy tail, and a row whose own error exceeds F gets 8 times that error as its limit.
        """
        if not np.array_equal(slow["rows"], fast["rows"]):
            raise ValueError("two paths must return the same rows in the same order")
        seen = _compared(slow, fast)
        row, step = np.nonzero(seen)
        draws = [np.asarray(path["logits"])[row, step] for path in (slow, fast)]
        tokens = [np.asarray(path["tokens"])[row, step] for path in (slow, fast)]
        keys = slow["rows"][row].astype(np.int64)
        uniforms = sampling.uniforms(seed, round_, keys[:, 0], keys[:, 1], step)
        choice = of_each_draw(
            self.choice, slow, row, step, seed, round_
        )  # one history serves both paths, which agree up to here
        errors = sampling.logit_distance(draws[0], draws[1])
        limits = np.full(errors.shape, self.limit)
        if not (errors <= self.limit).all() and (own := noise()) is not None:
            limits = np.maximum(self.limit, 8.0 * np.max(own, axis=1))[row]
        bad = ~(errors <= limits)
        for token, logits in zip(tokens, draws, strict=True):
            bad |= ~sampling.admissible(token, logits, uniforms, ETA_FLOAT64_SAMPLER, **choice)
        rerouted = np.zeros(len(row), np.bool_)
        if bad.any() and (near := gaps()) is not None:
            rerouted = near[row, step] <= self.limit
        cut = np.unique(row[bad & rerouted])
        bad &= ~rerouted
        drawn = np.asarray(fast["uniforms"])[row, step] != uniforms
        self.wrong_uniforms += int(drawn.sum())
        differing = tokens[0] != tokens[1]
        self.differences += int((differing & ~np.isin(row, cut)).sum()) + len(cut)
        silent = _lengths_disagree(slow, fast, differing_rows=np.unique([*row[differing], *cut]).astype(np.int64))
        self.unexplained += int(bad.sum()) + silent
        self.expected += float(sampling.expected_differences(draws[0], draws[1], **choice))
        shares = errors / limits if self.limit > 0 else errors
        largest = float(shares[~(rerouted & np.isin(row, cut))].max(initial=0.0))
        self.largest_error = max(self.largest_error, largest * self.limit if self.limit > 0 else largest)
        self.draws += row.size
        self.entropy_sum += _entropy(draws[0])
        self._note_ends(slow)
        if not self.first and bad.any():
            at = int(np.argmax(bad))
            pair = ", ".join(str(int(token[at])) for token in tokens)
            self.first = (
                f"prompt {keys[at, 0]}, sample {keys[at, 1]}, step {step[at]}: tokens {pair}, e {errors[at]:.3g}"
            )

    def _note_ends(self, slow: Mapping[str, Any]) -> None:
        ended = np.asarray(slow["ended"])
        self.ends |= {int(n) for n in np.asarray(slow["lengths"])[ended]}
        self.early += int(ended.sum())
        self.unended += int((~ended).sum())
        self.prompt_lengths |= {len(prompt) for prompt in slow.get("prompt_tokens", ())}


def _compared(slow: Mapping[str, Any], fast: Mapping[str, Any]) -> Array:
    """Return the positions up to and including the first differing token of each row, inside both lengths."""
    a, b = np.asarray(slow["tokens"]), np.asarray(fast["tokens"])
    width = min(a.shape[1], b.shape[1])
    shorter = np.minimum(slow["lengths"], fast["lengths"])
    inside = np.arange(width) < np.asarray(shorter)[:, None]
    differs = (a[:, :width] != b[:, :width]) & inside
    before = np.cumsum(differs, axis=1) - differs
    return np.asarray(inside & (before == 0))


def _lengths_disagree(slow: Mapping[str, Any], fast: Mapping[str, Any], differing_rows: Array) -> int:
    """Count rows whose tokens agree, although one path continued after the other had ended."""
    disagree = np.asarray(slow["lengths"]) != np.asarray(fast["lengths"])
    disagree[differing_rows] = False
    return int(disagree.sum())


def _entropy(logits: Array) -> float:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    weights = np.exp(shifted)
    total = weights.sum(axis=-1)
    return float(np.sum(np.log(total) - np.sum(weights * shifted, axis=-1) / total))


def of_each_draw(
    sampler: Mapping[str, Any], run: Mapping[str, Any], row: Array, step: Array, seed: int, round_: int
) -> Sampling:
    """Return the oracle's keywords for the draws at `row` and `step` of a run, with the coin and history of each."""
    coin = history = None
    if sampler["xtc_probability"] > 0:
        keys = run["rows"][row].astype(np.int64)
        coin = sampling.xtc_coins(seed, round_, keys[:, 0], keys[:, 1], step)
    if sampler["repetition_penalty"] != 1:
        prompts = [run["prompt_tokens"][int(i)] for i, _ in run["rows"]]
        history = np.full((len(row), max(map(len, prompts)) + int(step.max(initial=0))), -1, np.int64)
        for draw, (r, t) in enumerate(zip(row, step, strict=True)):
            earlier = np.concatenate([prompts[r], np.asarray(run["tokens"])[r, :t]])
            history[draw, : len(earlier)] = earlier
    return cast("Sampling", {**sampler, "xtc_coin": coin, "history": history, "ties": "lower-id"})
