"""One step of training: completions, log-probs of the old and the reference policy, advantages, then updates.

`Engine.learn` reads from top to bottom like the algorithm; what it calls follows in the order of the calls. The engine knows the
interface of `protocol` and no algorithm. An optimizer step divides by the counts of all its rows, so that the gradients of its
micro-batches add up to the gradient of the whole step.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten, tree_map
from numpy.typing import NDArray

from gates_reference.trainer import checkpointing, logprobs
from gates_reference.trainer.adapters import dropout
from gates_reference.trainer.algorithms import entropy, protocol, ratio
from gates_reference.trainer.config.read import Config
from gates_reference.trainer.engine import guard, micro_batches, rollout
from gates_reference.trainer.engine.micro_batches import Inputs, Step
from gates_reference.trainer.engine.observer import Observer
from gates_reference.trainer.engine.rollout import Generation


@dataclass(frozen=True, slots=True)
class Update:
    """The numbers of one optimizer step: the loss and its summands, and the gradient's norm.

    `gradient_norm` is that before the clip, `applied_norm` that of what the optimizer was given; NaN if the step was skipped.
    """

    loss: float
    policy: float
    kl: float
    entropy: float
    gradient_norm: float
    skipped: bool
    applied_norm: float = math.nan


@dataclass(slots=True)
class Learned:
    """Results of the updates on one generation; arrays are (R, T) of the last pass, None if they were not computed.

    `lengths` (R,) are the tokens of each completion that are in the loss; None means all.
    """

    advantages: NDArray[np.float32]
    updates: list[Update] = field(default_factory=list)
    policy: NDArray[np.float32] | None = None
    old: NDArray[np.float32] | None = None
    reference: NDArray[np.float32] | None = None
    entropy: NDArray[np.float32] | None = None
    lengths: NDArray[np.int64] | None = None

    def record(self, rows: NDArray[np.int64], **values: mx.array | None) -> None:
        """Write (B, T) values into the fields of these names at these rows; None leaves a field unchanged."""
        for name, value in values.items():
            if value is None:
                continue
            if getattr(self, name) is None:
                setattr(self, name, np.zeros((len(self.advantages), value.shape[1]), np.float32))
            getattr(self, name)[rows] = np.array(value)


@dataclass(slots=True)
class Engine:
    """A model whose adapters train, with everything that is the same in every step.

    `temperature` is that of the log-probs in the loss. `head_calls` is the largest number of pieces in which the head ran in one
    forward pass of an update, for the audit.
    """

    model: Any
    algorithm: protocol.Algorithm
    optimizer: Any
    source: rollout.Source
    config: Config
    folder: Path
    clock: "Clock"
    temperature: float
    observer: Observer | None = None
    head_calls: int = 0

    def generate(self, upcoming: Sequence[int], round_: int) -> Generation:
        """Return the completions for one step; `upcoming` are the next prompts in order, enough for every resample."""
        with self.clock("rollout"):
            return rollout.generate(
                self.model,
                self.source,
                self.algorithm,
                upcoming,
                wanted=self.config.loop.prompts_per_step,
                round_=round_,
                max_resamples=self.config.algorithm.max_resamples,
            )

    def learn(self, generation: Generation, number: int, learning_rate: float) -> Learned:
        """Update the adapters on the generation of step `number`; a generation without groups changes nothing."""
        if not generation.prompts:
            return Learned(np.zeros(0, np.float32))
        whole = generation
        if self.algorithm.masks_truncated:
            generation = micro_batches.without_truncated(generation)
        steps = self._cut(generation)
        # the KL in a reward is that of the whole completion, also where the loss leaves the completion out
        scored = self._cut(whole) if self.algorithm.masks_truncated and self.algorithm.kl_in_reward else steps
        with self.clock("scoring"):
            self._score_constants(whole, scored)
            learned = Learned(self._advantages(whole, scored), lengths=generation.lengths)
            if scored is not steps:
                micro_batches.take_constants(steps, scored)
        if self.observer:
            self.observer.learns(self.model, number, generation, scored, learned.advantages)
        self.optimizer.learning_rate = learning_rate
        with self.clock("updates"), self._checkpointed():
            for _ in range(self.config.loop.iterations):
                for step in steps:
                    learned.updates.append(self._update(generation, step, number, learned))
        return learned

    def _cut(self, generation: Generation) -> list[Step]:
        loop = self.config.loop
        return micro_batches.cut(generation, loop.minibatches, loop.micro_batch_rows, self.config.rollout.max_tokens)

    def _score_constants(self, generation: Generation, steps: list[Step]) -> None:
        """Fill in the log-probs of the sampler, the old and the reference policy, before the first update.

        Old log-probs are needed if a rollout gets several updates, for the ratio and its metrics, for a KL in the reward, and with
        dropout for an off-policy correction: its weights compare the policy without dropout with the sampler.
        """
        recorded = generation.model
        if self.temperature == self.config.rollout.temperature:
            recorded = generation.temperature_scaled
        sampled = generation.behaviour if self.config.algorithm.sampling_logprobs == "behaviour" else recorded
        stored = self.config.algorithm.old_logprobs == "stored"
        several = self.config.loop.iterations * self.config.loop.minibatches > 1
        corrected = self.algorithm.needs_sampling and self.config.adapter.dropout > 0
        for inputs in (inputs for step in steps for inputs in step.micro_batches):
            rows, batch = inputs.rows, inputs.batch
            inputs.sampling = micro_batches.padded(sampled, rows, batch.width)
            if stored:
                inputs.old = micro_batches.padded(recorded, rows, batch.width)
            elif several or corrected or self.algorithm.kl_in_reward:
                inputs.old = logprobs.of_policy(self.model, batch, self.temperature, head_rows=self._head_rows)
            if self.algorithm.needs_reference:
                inputs.reference = logprobs.of_reference(self.model, batch, self.temperature, head_rows=self._head_rows)

    def _advantages(self, generation: Generation, steps: list[Step]) -> NDArray[np.float32]:
        """Compute the advantages (R,) from the rewards, and give each micro-batch its own."""
        every = [inputs for step in steps for inputs in step.micro_batches]
        old_kl = None
        if self.algorithm.kl_in_reward:
            old_kl = np.zeros(len(generation.lengths))
            for inputs in every:
                old_kl[inputs.rows] = ratio.kl_in_reward(inputs.old, inputs.reference, inputs.batch.mask())
        advantages = np.asarray(self.algorithm.advantages(generation.rewards, old_kl=old_kl), np.float32)
        for inputs in every:
            inputs.advantages = mx.array(advantages[inputs.rows])
        return advantages

    def _update(self, generation: Generation, step: Step, number: int, learned: Learned) -> Update:
        """Make an optimizer step: add up the gradients of its micro-batches, clip the sum, and apply it if it is finite."""
        earlier = len(learned.updates)
        step = replace(step, totals=self._with_threshold(step, number, earlier))
        gradient: Any = None
        losses = np.zeros(4)
        for inputs in step.micro_batches:
            with self._dropout(number, earlier, inputs):
                share, values = self._gradient(inputs, step.totals, learned)
            gradient = share if gradient is None else tree_map(mx.add, gradient, share)
            mx.eval(gradient)
            losses += values
        norm = global_norm(gradient)
        skipped = not (math.isfinite(losses[0]) and math.isfinite(norm))
        applied = math.nan
        if skipped:
            self._report_nonfinite(generation, step, number)
        else:
            applied = self._apply(gradient, norm)
        loss, policy, kl, bonus = losses.tolist()
        update = Update(loss, policy, kl, bonus, norm, skipped, applied)
        if self.observer:
            self.observer.updated(self.model, update, gradient)
        return update

    def _apply(self, gradient: Any, norm: float) -> float:
        """Clip a gradient of this norm, let the optimizer move the adapters, and return the norm of what it was given."""
        applied = clipped(gradient, norm, self.config.optimizer.max_gradient_norm)
        self.optimizer.update(self.model, applied)
        mx.eval(self.model.trainable_parameters(), self.optimizer.state)
        return norm if applied is gradient else global_norm(applied)

    def _gradient(
        self, inputs: Inputs, totals: protocol.StepTotals, learned: Learned
    ) -> tuple[Any, NDArray[np.float64]]:
        """Return a micro-batch's share of the gradient, and of the loss with its policy, KL and entropy summands."""
        seen: dict[str, mx.array] = {}
        batch: protocol.MicroBatch

        def loss() -> mx.array:
            nonlocal batch
            batch = self._scored(inputs)
            result = self.algorithm.loss(batch, totals)
            summands = {"value": result.value, "summand": result.policy, "kl": result.kl, "bonus": result.entropy}
            scores = {"policy": batch.policy} | ({} if batch.entropy is None else {"entropy": batch.entropy})
            seen.update((name, mx.stop_gradient(x)) for name, x in (summands | scores).items())
            return result.value

        _, gradient = loss_and_grad(self.model, loss)
        mx.eval(gradient, seen)
        if self.observer:
            self.observer.scored(inputs, replace(batch, policy=seen["policy"], entropy=seen.get("entropy")), totals)
        old = seen["policy"] if inputs.old is None else inputs.old
        learned.record(
            inputs.rows, policy=seen["policy"], old=old, reference=inputs.reference, entropy=seen.get("entropy")
        )
        return gradient, np.array([float(seen[name]) for name in ("value", "summand", "kl", "bonus")])

    def _scored(self, inputs: Inputs) -> protocol.MicroBatch:
        """Score a micro-batch by a forward pass of the current policy."""
        scores = self._scores(inputs, entropy=self.algorithm.needs_entropy)
        self.head_calls = max(self.head_calls, scores.head_calls)
        return protocol.MicroBatch(
            policy=scores.values,
            mask=scores.mask,
            advantages=inputs.advantages,
            groups=inputs.groups,
            old=inputs.old,
            reference=inputs.reference,
            sampling=inputs.sampling if self.algorithm.needs_sampling else None,
            entropy=scores.entropy,
        )

    def _scores(self, inputs: Inputs, *, entropy: bool) -> logprobs.Scores:
        return logprobs.scored(self.model, inputs.batch, self.temperature, entropy=entropy, head_rows=self._head_rows)

    def _with_threshold(self, step: Step, number: int, update: int) -> protocol.StepTotals:
        """Return the step's counts with the top-entropy threshold of all its micro-batches, scored as in their update."""
        if self.algorithm.entropy_share >= 1 or len(step.micro_batches) == 1:
            return step.totals
        scores = []
        for inputs in step.micro_batches:
            with self._dropout(number, update, inputs):
                scores.append(self._scores(inputs, entropy=True))
        entropies = np.concatenate([np.array(part.entropy) for part in scores])
        mask = np.concatenate([np.array(part.mask) for part in scores])
        top = entropy.threshold(entropies, mask, self.algorithm.entropy_share)
        return replace(step.totals, entropy_threshold=top.least, entropy_tokens=top.tokens)

    def _report_nonfinite(self, generation: Generation, step: Step, number: int) -> None:
        """Write the samples that make the loss or its gradient non-finite to a file; stop unless the configuration says to skip."""

        def finite(inputs: Inputs) -> bool:
            value, gradient = loss_and_grad(
                self.model, lambda: self.algorithm.loss(self._scored(inputs), step.totals).value
            )
            return math.isfinite(float(value)) and math.isfinite(global_norm(gradient))

        rows = guard.offenders(step.micro_batches, finite, 2 if generation.rewards.group_size == 2 else 1)
        path = self.folder / f"nonfinite-step-{number}.json"
        guard.record(path, generation, rows, number)
        if self.config.loop.nonfinite == "stop":
            raise guard.NonFiniteError(
                f"step {number}: the loss or its gradient is not finite; {len(rows)} of {len(generation.lengths)} samples "
                f"do it alone, see {path}. To go on without such updates set loop.nonfinite = 'skip'"
            )

    @property
    def _head_rows(self) -> int | None:
        return self.config.loop.head_rows or None

    def _checkpointed(self) -> contextlib.AbstractContextManager[None]:
        """Return a context with per-layer checkpointing if it is configured; only updates need it, and decoding is faster without."""
        return checkpointing.per_layer(self.model) if self.config.model.checkpoint_layers else contextlib.nullcontext()

    def _dropout(self, number: int, update: int, inputs: Inputs) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the adapters' dropout is on, with masks of their own for this micro-batch of this update."""
        adapter = self.config.adapter
        if not adapter.dropout:
            return contextlib.nullcontext()
        return dropout.drawn(self.model, adapter.seed, number, update, int(inputs.rows[0]))


def loss_and_grad(model: Any, loss: Callable[[], mx.array]) -> tuple[mx.array, Any]:
    """Return the loss and its gradient in the model's trainable parameters; the forward pass must run inside `loss`."""
    value, gradient = nn.value_and_grad(model, loss)()
    return value, gradient


def global_norm(gradient: Any) -> float:
    """Return the Euclidean norm of all values of a gradient; squares are summed in float32 per array, then in float64."""
    return float(np.sqrt(sum(float((g.astype(mx.float32) ** 2).sum()) for _, g in tree_flatten(gradient))))


def clipped(gradient: Any, norm: float, limit: float | Literal["off"]) -> Any:
    """Scale the gradient down so that its global norm is at most `limit` (Pascanu et al. 2013); leave a smaller one unchanged."""
    if limit == "off" or norm <= limit:
        return gradient
    scale = mx.array(limit / norm, mx.float32)
    return tree_map(lambda g: (g * scale).astype(g.dtype), gradient)


class Clock:
    """Add up the wall-clock seconds of named phases."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Add the time inside the block to a phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[phase] = self._seconds.get(phase, 0.0) + time.perf_counter() - start

    def read(self) -> dict[str, float]:
        """Return the seconds of each phase since the last reading."""
        seconds, self._seconds = self._seconds, {}
        return seconds
