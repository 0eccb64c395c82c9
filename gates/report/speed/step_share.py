"""What the time that an op saves is of a whole training step, and what that means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gates.report.speed import published
from gates.report.speed.numbers import dimensions, percent, size
from gates.report.speed.recorded import REFERENCE, Kernel, Recorded, Trainer
from gates.results.speed_records import Interval

VOCABULARY = 32_000  # from here on the logits of a shape are those of a real model
NOTHING, LITTLE = 1e-3, 1e-2  # of a step; below them an op does not matter, or little
#: The batch of the published step, which its document does not name: an assumption of this report.
COMPLETIONS, TOKENS = 64, 512

Work = Literal["completions", "tokens", "sampled", "scored"]
#: What an op works on in a step: once on all completions or tokens, or on a row of logits for each token.
WORK: dict[str, Work] = {
    "group_advantages": "completions",
    "pack_sequences": "completions",
    "token_kl": "tokens",
    "importance_ratio": "tokens",
    "policy_loss": "tokens",
    "sample_tokens": "sampled",
    "filtered_logprobs": "sampled",
    "full_kl": "sampled",
    "selective_log_softmax": "scored",
}
ROWS = ("sampled", "scored")


@dataclass(frozen=True, slots=True)
class Step:
    """A training step: how long it takes and how much of each work is in it."""

    name: str
    seconds: float
    vocabulary: bool  # of a real model's size
    work: dict[Work, int]


@dataclass(frozen=True, slots=True)
class Share:
    """The time that one op saves in a step against each peer, least and greatest, in seconds and of the step."""

    shape: str
    calls: float
    least_s: float
    most_s: float
    step: Step
    logits: bool  # the op works on rows of logits

    @property
    def most(self) -> float:
        """Return the greatest share of the step."""
        return max(abs(self.least_s), abs(self.most_s)) / self.step.seconds

    @property
    def words(self) -> str:
        """Return the share in percent."""
        ends = [percent(value / self.step.seconds) for value in (self.least_s, self.most_s)]
        return " to ".join(dict.fromkeys(ends))

    @property
    def meaning(self) -> str:
        """Return whether it matters."""
        if self.most < NOTHING:
            return "does not matter"
        words = "matters little" if self.most < LITTLE else "matters"
        where = " on a processor" if self.logits else ""
        return f"{words}{where}"


def published_step() -> Step:
    """Return the published step at its shortest, of which every share is the greatest."""
    tokens = COMPLETIONS * TOKENS
    work: dict[Work, int] = {"completions": COMPLETIONS, "tokens": tokens, "sampled": tokens, "scored": 2 * tokens}
    return Step(f"{published.STEP.model} step", published.STEP.least, vocabulary=True, work=work)


def reference_step(recorded: Recorded) -> tuple[Step, Trainer] | None:
    """Return the step of our own trainer with the most generated tokens on the largest vocabulary, if one was timed."""
    found = [
        (trainer, trainer.row.step_s)
        for trainer in recorded.trainers
        if trainer.row.target == REFERENCE and trainer.shown and trainer.row.step_s and trainer.row.generated_tokens
    ]
    if not found:
        return None
    trainer, step_s = max(found, key=lambda one: (_real(one[0].row.model), one[0].row.generated_tokens))
    row = trainer.row
    completions = round(row.samples_per_s.value * step_s.value) if row.samples_per_s else 0
    work: dict[Work, int] = {
        "completions": completions,
        "tokens": row.generated_tokens,
        "sampled": row.generated_tokens,
        "scored": row.forward_tokens or row.generated_tokens,
    }
    return Step("step of our reference trainer", step_s.value, _real(row.model), work), trainer


def _real(model: str) -> bool:
    """Return whether a model has a real vocabulary; the tiny ones have a few hundred tokens."""
    return not model.startswith(("tiny", "ten", "narrow"))


def share(kernels: Sequence[Kernel], step: Step) -> Share | None:
    """Return what an op saves in a step against the peers, at the measured shape that is nearest to the step's work.

    An op on completions or tokens is called once a step. One on logits costs each token its part of a call; it has no
    share in a step whose vocabulary is not that of the shape.

    Args:
        kernels: of one op and variant.
        step: what the time is set against.
    """
    kind = WORK.get(kernels[0].op) if kernels else None
    amount = step.work.get(kind, 0) if kind else 0
    shown = [kernel for kernel in kernels if kernel.shown and kernel.row.theirs and size(kernel.row.shape)]
    if kind in ROWS:
        shown = [kernel for kernel in shown if step.vocabulary and max(dimensions(kernel.row.shape)) >= VOCABULARY]
    if not shown or not amount:
        return None
    logits = kind in ROWS
    sizes = {k.row.shape: dimensions(k.row.shape)[0] if logits else size(k.row.shape) for k in shown}
    nearest = min(set(sizes.values()), key=lambda n: (round(abs(math.log(n / amount)), 6), -n))
    calls = amount / nearest if logits else 1.0
    saved = [
        1e-6 * calls * (k.row.theirs.median_us - k.row.ours.median_us)
        for k in shown
        if sizes[k.row.shape] == nearest and k.row.theirs and k.row.ours
    ]
    shape = next(name for name, n in sizes.items() if n == nearest)
    return Share(shape.partition("-")[0], calls, min(saved), max(saved), step, logits)


def step_words(trainer: Trainer, step_s: Interval | None) -> str:
    """Return which step of ours was taken."""
    row = trainer.row
    long = f"{step_s.value:.3g} s" if step_s else "unknown"
    return f"{row.model}, {row.workload}: {long}, {row.generated_tokens:,} generated tokens"
