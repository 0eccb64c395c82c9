"""How much of a training step each op's saving amounts to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gates.report.speed import published
from gates.report.speed.numbers import LEAST, dimensions, percent, seconds, size
from gates.report.speed.recorded import REFERENCE, Kernel, Recorded, Trainer
from gates.results.speed_records import Interval

VOCABULARY = 32_000  # least vocabulary of a real model
LONGER = "more than the step"
NEGLIGIBLE, SMALL = 1e-3, 1e-2  # savings below these shares of a step
#: The batch of the published step: an assumption of this report, since its source does not state one.
COMPLETIONS, TOKENS = 64, 512

Work = Literal["completions", "tokens", "sampled", "scored"]
#: The work of an op in a step: one call for all completions or tokens, or a row of logits for each token.
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
    """A training step: its duration and the amount of each kind of work."""

    name: str
    seconds: float
    vocabulary: bool  # whether it is as large as a real model's
    work: dict[Work, int]


@dataclass(frozen=True, slots=True)
class Share:
    """The least and the greatest time that an op saves in a step, over all peers."""

    shape: str
    calls: float
    least_s: float
    most_s: float
    step: Step
    logits: bool  # the op works on rows of logits

    @property
    def most(self) -> float:
        """Return the largest saving, or loss, as a share of the step."""
        return max(abs(self.least_s), abs(self.most_s)) / self.step.seconds

    @property
    def label(self) -> str:
        """Format the range of savings as shares of the step; the peer's op alone may take longer than the step."""
        if self.least_s > self.step.seconds:
            return LONGER
        least, most = (percent(value / self.step.seconds) for value in (self.least_s, self.most_s))
        if self.most_s > self.step.seconds:
            return f"{least} to {LONGER}"
        if 0 <= self.least_s < LEAST * self.step.seconds:
            return f"at most {most}"
        return " to ".join(dict.fromkeys((least, most)))

    @property
    def largest(self) -> str:
        """Format the largest saving with its share of the step and what it means."""
        if self.most > 1:
            return f"{LONGER}, but {self.meaning}"
        saved = self.most * self.step.seconds
        return f"{seconds(saved)}, {percent(self.most)}: {self.meaning}"

    @property
    def meaning(self) -> str:
        """Return a word for the size of the saving."""
        if self.most < NEGLIGIBLE:
            return "negligible"
        if self.logits:
            return "only where the logits are on the CPU"
        return "small" if self.most < SMALL else "large"


def published_step() -> Step:
    """Return the published step at its shortest, which gives the largest shares."""
    tokens = COMPLETIONS * TOKENS
    work: dict[Work, int] = {"completions": COMPLETIONS, "tokens": tokens, "sampled": tokens, "scored": 2 * tokens}
    return Step(f"{published.STEP.model} step", published.STEP.least, vocabulary=True, work=work)


def reference_step(recorded: Recorded) -> tuple[Step, Trainer] | None:
    """Return the step of the reference trainer with the largest vocabulary and the most tokens, if one was timed."""
    candidates = [
        (trainer, trainer.row.step_s)
        for trainer in recorded.trainers
        if trainer.row.target == REFERENCE and trainer.shown and trainer.row.step_s and trainer.row.generated_tokens
    ]
    if not candidates:
        return None
    trainer, step_s = max(candidates, key=lambda pair: (_real(pair[0].row.model), pair[0].row.generated_tokens))
    row = trainer.row
    completions = round(row.samples_per_s.value * step_s.value) if row.samples_per_s else 0
    work: dict[Work, int] = {
        "completions": completions,
        "tokens": row.generated_tokens,
        "sampled": row.generated_tokens,
        "scored": row.forward_tokens or row.generated_tokens,
    }
    return Step("step of the reference trainer", step_s.value, _real(row.model), work), trainer


def _real(model: str) -> bool:
    """Return whether a model has a real vocabulary; tiny models have a few hundred tokens."""
    return not model.startswith(("tiny", "ten", "narrow"))


def share(kernels: Sequence[Kernel], step: Step) -> Share | None:
    """Return the time that an op saves in a step, from the measured shape nearest to the step's work.

    An op on completions or tokens is called once per step. An op on logits is called as often as the tokens need; it has no
    share in a step whose vocabulary is too small.

    Args:
        kernels: measurements of one op.
        step: the training step.
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


def step_label(trainer: Trainer, step_s: Interval | None) -> str:
    """Describe a measured step: model, workload, duration, tokens."""
    row = trainer.row
    duration = f"{step_s.value:.3g} s" if step_s else "unknown"
    return f"{row.model}, {row.workload}: {duration}, {row.generated_tokens:,} generated tokens"
