"""Completions and their rewards for one step of training, resampled where the algorithm drops groups."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reference.trainer import rollout as rollouts
from reference.trainer import sampling
from reference.trainer.algorithms import protocol
from reference.trainer.config import sections
from reference.trainer.data import text
from reference.trainer.data.prompts import Prompt
from reference.trainer.rewards.samples import Sample
from reference.trainer.rollout import table

FILTERS: Final = tuple(f.name for f in fields(sampling.Settings))

Scorer = Callable[[Sequence[Sample], int], protocol.Rewards]
"""Rewards of samples in groups of this size."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What one step learns from: R = P * G rows, prompt-major, and how they came about.

    `tokens` is (R, T) with -1 past the end; `tempered`, `behaviour` and `model` (R, T) are the sampler's log-probs in nats.
    `rounds` counts the rollouts, `taken` the prompts that were rolled out, `dropped` those of their groups that are not among
    these rows: the algorithm did not keep them, or enough others were there before.
    """

    prompts: list[Prompt]
    samples: list[Sample]
    rewards: protocol.Rewards
    tokens: NDArray[np.int32]
    lengths: NDArray[np.int64]
    ended: NDArray[np.bool_]
    model: NDArray[np.float64]
    tempered: NDArray[np.float64]
    behaviour: NDArray[np.float64]
    rounds: int
    taken: int
    dropped: int

    @property
    def group_size(self) -> int:
        """Completions per prompt."""
        return self.rewards.group_size


def eos_ids(tokenizer: Any) -> tuple[int, ...]:
    """The tokens that end a completion, as the tokenizer says."""
    return tuple(sorted(int(i) for i in tokenizer.eos_token_ids))


def _times_before(chosen: Sequence[int]) -> list[int]:
    """How often each of the chosen stands among those before it."""
    seen: Counter[int] = Counter()
    times: list[int] = []
    for place in chosen:
        times.append(seen[place])
        seen[place] += 1
    return times


def request(
    every: Sequence[Prompt], chosen: Sequence[int], settings: sections.Rollout, ends: Sequence[int], round_: int
) -> table.Request:
    """All samples of the chosen prompts. The sampler's draws are keyed by a prompt's index in the source, so the table is as long as that.

    A prompt stands twice in `chosen` where a step goes over the end of an epoch. Its draws are keyed by (prompt, sample), so the
    samples of a later occurrence go on counting where those before it ended: with the same numbers they would be the same.
    """
    longest = max(p.index for p in every) + 1
    prompts = [np.zeros(1, np.int32)] * longest
    for place in chosen:
        prompts[every[place].index] = every[place].ids
    samples = settings.samples_per_prompt
    before = _times_before(chosen)
    rows = [
        [every[place].index, times * samples + j]
        for place, times in zip(chosen, before, strict=True)
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
    """The completions as reward functions see them."""
    made: list[Sample] = []
    for row, length in enumerate(result.lengths.tolist()):
        prompt = every[chosen[row // group_size]]
        completion = text.decode(tokenizer, result.tokens[row, : length - bool(result.ended[row])].tolist())
        made.append(Sample(prompt.text, completion, length, prompt.answer, row // group_size, prompt.row))
    return made


@dataclass(frozen=True, slots=True)
class Source:
    """What completions are made of, the same for every step."""

    tokenizer: Any
    prompts: list[Prompt]
    rollout: sections.Rollout
    eos_ids: tuple[int, ...]
    score: Scorer
    paths: set[str] = field(default_factory=set)
    """The rollout paths that have run."""

    def once(self, model: Any, chosen: Sequence[int], round_: int) -> Generation:
        """One rollout of the chosen prompts (places in `prompts`) with its rewards."""
        asked = request(self.prompts, chosen, self.rollout, self.eos_ids, round_)
        result = rollouts.run(model, asked, self.rollout.path)
        self.paths.add(result.path)
        size = self.rollout.samples_per_prompt
        samples = samples_of(self.tokenizer, self.prompts, chosen, result, size)
        return Generation(
            prompts=[self.prompts[place] for place in chosen],
            samples=samples,
            rewards=self.score(samples, size),
            tokens=result.tokens,
            lengths=result.lengths,
            ended=result.ended,
            model=result.model,
            tempered=result.tempered,
            behaviour=result.behaviour,
            rounds=1,
            taken=len(chosen),
            dropped=0,
        )


def kept(generation: Generation, groups: NDArray[np.bool_]) -> Generation:
    """The generation with these groups (P,) only; the samples keep their own group numbers."""
    size = generation.group_size
    rows = np.repeat(groups, size)
    old = generation.rewards
    rewards = protocol.Rewards(old.values[rows], old.weights, size, old.lengths[rows], old.accuracy)
    return Generation(
        prompts=[p for p, keep in zip(generation.prompts, groups, strict=True) if keep],
        samples=[s for s, keep in zip(generation.samples, rows, strict=True) if keep],
        rewards=rewards,
        tokens=generation.tokens[rows],
        lengths=generation.lengths[rows],
        ended=generation.ended[rows],
        model=generation.model[rows],
        tempered=generation.tempered[rows],
        behaviour=generation.behaviour[rows],
        rounds=generation.rounds,
        taken=generation.taken,
        dropped=generation.dropped + int((~groups).sum()),
    )


def joined(left: Generation, right: Generation) -> Generation:
    """Both generations, one after the other."""
    a, b = left.rewards, right.rewards
    both = {
        name: np.concatenate([getattr(left, name), getattr(right, name)])
        for name in ("tokens", "lengths", "ended", "model", "tempered", "behaviour")
    }
    return Generation(
        prompts=left.prompts + right.prompts,
        samples=left.samples + right.samples,
        rewards=protocol.Rewards(
            np.concatenate([a.values, b.values]),
            a.weights,
            a.group_size,
            np.concatenate([a.lengths, b.lengths]),
            a.accuracy,
        ),
        rounds=left.rounds + right.rounds,
        taken=left.taken + right.taken,
        dropped=left.dropped + right.dropped,
        **both,
    )


def generate(
    model: Any,
    source: Source,
    algorithm: protocol.Algorithm,
    places: Callable[[int, int], Sequence[int]],
    *,
    wanted: int,
    round_: int,
    max_resamples: int,
) -> Generation:
    """Roll out until `wanted` groups are kept, with fresh prompts and a new round each time, `max_resamples` times more at most.

    `places(offset, count)` are the prompts from `offset` on. What is kept beyond `wanted` is not used. Source: dynamic
    sampling of DAPO (Yu et al. 2025, arXiv 2503.14476, section 3.2).
    """
    first = source.once(model, places(0, wanted), round_)
    result = kept(first, algorithm.keep(first.rewards))
    while len(result.prompts) < wanted and result.rounds <= max_resamples:
        more = source.once(model, places(result.taken, wanted), round_ + result.rounds)
        result = joined(result, kept(more, algorithm.keep(more.rewards)))
    if len(result.prompts) > wanted:
        surplus = np.arange(len(result.prompts)) < wanted
        result = kept(result, surplus)
    return result
