"""Completions and their rewards for one step of training, resampled where the algorithm drops groups."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gates_reference.trainer import rollout as rollouts
from gates_reference.trainer import sampling
from gates_reference.trainer.algorithms import protocol
from gates_reference.trainer.config import sections
from gates_reference.trainer.data import prompts
from gates_reference.trainer.data.prompts import Prompt
from gates_reference.trainer.engine.observer import Observer
from gates_reference.trainer.rewards.samples import Sample
from gates_reference.trainer.rollout import table

FILTERS: Final = tuple(f.name for f in fields(sampling.Settings))
ARRAYS: Final = ("tokens", "lengths", "ended", "model", "temperature_scaled", "behaviour")
"""The fields of a generation with one entry per row."""

Scorer = Callable[[Sequence[Sample], int], protocol.Rewards]
"""A function of samples and group size to their rewards."""


@dataclass(frozen=True, slots=True)
class Generation:
    """The completions that one step learns from: R = P * G rows, prompt-major.

    Attributes:
        prompts: the P prompts.
        samples: the R completions as reward functions see them.
        rewards: their rewards.
        tokens: (R, T), -1 past the end.
        lengths: (R,), tokens of each completion.
        ended: (R,), whether the completion has an end token.
        model: (R, T), the sampler's log-probs in nats, of the model at temperature 1.
        temperature_scaled: (R, T), the same at the rollout's temperature, without filters.
        behaviour: (R, T), the same after every filter.
        rounds: how many rollouts were made.
        taken: how many prompts were rolled out.
        dropped: how many of their groups are not among these rows: not kept by the algorithm, or surplus.
    """

    prompts: list[Prompt]
    samples: list[Sample]
    rewards: protocol.Rewards
    tokens: NDArray[np.int32]
    lengths: NDArray[np.int64]
    ended: NDArray[np.bool_]
    model: NDArray[np.float64]
    temperature_scaled: NDArray[np.float64]
    behaviour: NDArray[np.float64]
    taken: int
    rounds: int = 1
    dropped: int = 0

    @property
    def group_size(self) -> int:
        """Completions per prompt."""
        return self.rewards.group_size


def eos_ids(tokenizer: Any) -> tuple[int, ...]:
    """Return the tokens that end a completion, from the tokenizer."""
    return tuple(sorted(int(i) for i in tokenizer.eos_token_ids))


def _times_before(chosen: Sequence[int]) -> list[int]:
    """Count for each of the chosen how often it occurs before."""
    seen: Counter[int] = Counter()
    times: list[int] = []
    for position in chosen:
        times.append(seen[position])
        seen[position] += 1
    return times


def request(
    every: Sequence[Prompt], chosen: Sequence[int], settings: sections.Rollout, ends: Sequence[int], round_: int
) -> table.Request:
    """Request all samples of the chosen prompts. Draws are keyed by a prompt's index in the source, so the table has that length.

    A prompt is chosen twice in a step that crosses the end of an epoch. Its second occurrence continues the sample numbers of the
    first: draws are keyed by (prompt, sample), so equal numbers would give equal completions.
    """
    longest = max(p.index for p in every) + 1
    prompts = [np.zeros(1, np.int32)] * longest
    for position in chosen:
        prompts[every[position].index] = every[position].ids
    samples = settings.samples_per_prompt
    before = _times_before(chosen)
    rows = [
        [every[position].index, times * samples + j]
        for position, times in zip(chosen, before, strict=True)
        for j in range(samples)
    ]
    return table.Request(
        prompts=prompts,
        rows=np.array(rows, np.int64).reshape(-1, 2),
        samples=(max(before, default=0) + 1) * samples,
        max_tokens=settings.max_tokens,
        settings=sampling.Settings(**{name: getattr(settings, name) for name in FILTERS}),
        eos_ids=np.array(sorted({*ends, *settings.stop_ids}), np.int64),
        seed=settings.seed,
        round=round_,
        kv_bits=settings.kv_bits,
    )


def samples_of(
    tokenizer: Any, every: Sequence[Prompt], chosen: Sequence[int], result: table.Rollout, group_size: int
) -> list[Sample]:
    """Return the completions as reward functions see them."""
    made: list[Sample] = []
    for row, length in enumerate(result.lengths.tolist()):
        prompt = every[chosen[row // group_size]]
        completion = prompts.decode(tokenizer, result.tokens[row, : length - bool(result.ended[row])].tolist())
        made.append(Sample(prompt.text, completion, length, prompt.answer, row // group_size, prompt.row))
    return made


@dataclass(frozen=True, slots=True)
class Source:
    """What completions are drawn from: tokenizer, prompts, sampling settings and rewards; the same in every step."""

    tokenizer: Any
    prompts: list[Prompt]
    rollout: sections.Rollout
    eos_ids: tuple[int, ...]
    score: Scorer
    paths: set[str] = field(default_factory=set)
    """The rollout paths that have been used."""
    observer: Observer | None = None

    def once(self, model: Any, chosen: Sequence[int], round_: int) -> Generation:
        """Roll out the chosen prompts (positions in `prompts`) once and score the completions."""
        asked = request(self.prompts, chosen, self.rollout, self.eos_ids, round_)
        result = rollouts.run(model, asked, self.rollout.path)
        self.paths.add(result.path)
        size = self.rollout.samples_per_prompt
        samples = samples_of(self.tokenizer, self.prompts, chosen, result, size)
        made = Generation(
            prompts=[self.prompts[position] for position in chosen],
            samples=samples,
            rewards=self.score(samples, size),
            tokens=result.tokens,
            lengths=result.lengths,
            ended=result.ended,
            model=result.model,
            temperature_scaled=result.temperature_scaled,
            behaviour=result.behaviour,
            taken=len(chosen),
        )
        if self.observer:
            self.observer.rolled_out(chosen, asked, made)
        return made


def kept(generation: Generation, groups: NDArray[np.bool_]) -> Generation:
    """Return the generation with these groups (P,) only; the samples keep their group numbers."""
    rows = np.repeat(groups, generation.group_size)
    old = generation.rewards
    arrays: dict[str, Any] = {name: getattr(generation, name)[rows] for name in ARRAYS}
    return replace(
        generation,
        prompts=[p for p, keep in zip(generation.prompts, groups, strict=True) if keep],
        samples=[s for s, keep in zip(generation.samples, rows, strict=True) if keep],
        rewards=replace(old, values=old.values[rows], lengths=old.lengths[rows]),
        dropped=generation.dropped + int((~groups).sum()),
        **arrays,
    )


def joined(left: Generation, right: Generation) -> Generation:
    """Concatenate two generations."""
    a, b = left.rewards, right.rewards
    arrays: dict[str, Any] = {name: np.concatenate([getattr(left, name), getattr(right, name)]) for name in ARRAYS}
    return Generation(
        prompts=left.prompts + right.prompts,
        samples=left.samples + right.samples,
        rewards=replace(a, values=np.concatenate([a.values, b.values]), lengths=np.concatenate([a.lengths, b.lengths])),
        rounds=left.rounds + right.rounds,
        taken=left.taken + right.taken,
        dropped=left.dropped + right.dropped,
        **arrays,
    )


def generate(
    model: Any,
    source: Source,
    algorithm: protocol.Algorithm,
    upcoming: Sequence[int],
    *,
    wanted: int,
    round_: int,
    max_resamples: int,
) -> Generation:
    """Roll out until `wanted` groups are kept, each time with fresh prompts and a new round, at most `max_resamples` times more.

    `upcoming` are the next prompts in order, enough for every rollout. Surplus groups are dropped. Source: dynamic sampling of DAPO
    (Yu et al. 2025, arXiv 2503.14476, section 3.2).
    """
    first = source.once(model, upcoming[:wanted], round_)
    result = kept(first, algorithm.keep(first.rewards))
    while len(result.prompts) < wanted and result.rounds <= max_resamples:
        more = source.once(model, upcoming[result.taken : result.taken + wanted], round_ + result.rounds)
        result = joined(result, kept(more, algorithm.keep(more.rewards)))
    if len(result.prompts) > wanted:
        surplus = np.arange(len(result.prompts)) < wanted
        result = kept(result, surplus)
    return result
