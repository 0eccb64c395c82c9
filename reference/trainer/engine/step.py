"""One step of training with any `Algorithm`: rollout, rewards, advantages, constant passes, updates.

The engine knows the protocol and no algorithm. An optimizer step divides by the counts of all its rows, so that the gradients of
its micro-batches add up to the gradient of the whole step.
"""

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_map
from numpy.typing import NDArray

from reference.trainer import checkpointing, logprobs
from reference.trainer.adapters import dropout
from reference.trainer.algorithms import protocol
from reference.trainer.config.read import Config
from reference.trainer.engine import constants, guard, micro_batches, passes, rollout
from reference.trainer.engine import optimizer as optimizers
from reference.trainer.engine.clock import Clock
from reference.trainer.engine.micro_batches import Inputs, Step
from reference.trainer.engine.rollout import Generation


@dataclass(frozen=True, slots=True)
class Update:
    """The numbers of one optimizer step: the loss and its summands, and the gradient's norm before clipping."""

    loss: float
    policy: float
    kl: float
    entropy: float
    gradient_norm: float
    skipped: bool


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


@dataclass(slots=True)
class Engine:
    """A model whose adapters train, with everything that is the same in every step."""

    model: Any
    algorithm: protocol.Algorithm
    optimizer: Any
    source: rollout.Source
    config: Config
    folder: Path
    clock: Clock
    head_calls: int = 0
    """The largest number of pieces in which the head ran in one forward pass of an update; for the audit."""

    def generate(self, places: Callable[[int, int], Sequence[int]], round_: int) -> Generation:
        """Return the completions for one step; `places(offset, count)` names the prompts."""
        with self.clock("rollout"):
            return rollout.generate(
                self.model,
                self.source,
                self.algorithm,
                places,
                wanted=self.config.loop.prompts_per_step,
                round_=round_,
                max_resamples=self.config.algorithm.max_resamples,
            )

    def learn(self, generation: Generation, step: int, learning_rate: float) -> Learned:
        """Update the adapters on the generation; a generation without groups changes nothing."""
        if not generation.prompts:
            return Learned(np.zeros(0, np.float32))
        if self._setting("mask_truncated_completions", default=False):
            generation = micro_batches.without_truncated(generation)
        steps = micro_batches.cut(
            generation,
            self.config.loop.minibatches,
            self.config.loop.micro_batch_rows,
            self.config.rollout.max_tokens,
        )
        with self.clock("scoring"):
            learned = Learned(self._constants(generation, steps), lengths=generation.lengths)
        self.optimizer.learning_rate = learning_rate
        with self.clock("updates"), self._checkpointed():
            for _ in range(self.config.loop.iterations):
                self._pass(generation, steps, step, learned)
        return learned

    def _checkpointed(self) -> contextlib.AbstractContextManager[None]:
        """Return a context with per-layer checkpointing if it is configured; only updates need it, and decoding is faster without."""
        return checkpointing.per_layer(self.model) if self.config.model.checkpoint_layers else contextlib.nullcontext()

    def _constants(self, generation: Generation, steps: list[Step]) -> NDArray[np.float32]:
        """Fill in old, reference and sampling log-probs and the advantages; return the advantages (R,)."""
        settings = self.config.algorithm
        temperature = self.config.scoring_temperature()
        several = self.config.loop.iterations * self.config.loop.minibatches > 1
        in_reward = self.algorithm.needs_reference and self._setting("kl_in_reward", default=False)
        stored = settings.old_logprobs == "stored"
        need = constants.Needed(old=not stored and (several or in_reward), reference=self.algorithm.needs_reference)
        same = temperature == self.config.rollout.temperature
        recorded = generation.temperature_scaled if same else generation.model
        sampled = generation.behaviour if settings.sampling_logprobs == "behaviour" else recorded
        every = [inputs for one in steps for inputs in one.micro_batches]
        for inputs in every:
            inputs.sampling = micro_batches.padded(sampled, inputs.rows, inputs.batch.width)
            inputs.old = micro_batches.padded(recorded, inputs.rows, inputs.batch.width) if stored else None
        constants.fill(self.model, steps, temperature, need, head_rows=self._head_rows())
        old_kl = constants.summed_difference(steps, len(generation.lengths)) if in_reward else None
        advantages = np.asarray(self.algorithm.advantages(generation.rewards, old_kl=old_kl), np.float32)
        for inputs in every:
            inputs.advantages = mx.array(advantages[inputs.rows])
        return advantages

    def _setting(self, name: str, *, default: Any) -> Any:
        """Return a setting of the algorithm; not every algorithm has each."""
        return getattr(getattr(self.algorithm, "settings", None), name, default)

    def _head_rows(self) -> int | None:
        return self.config.loop.head_rows or None

    def _scored(self, inputs: Inputs, seen: dict[str, mx.array] | None = None) -> protocol.MicroBatch:
        """Score a micro-batch by a forward pass of the current policy; put the values into `seen`."""
        scores = logprobs.scored(
            self.model,
            inputs.batch,
            self.config.scoring_temperature(),
            entropy=self.algorithm.needs_entropy,
            head_rows=self._head_rows(),
        )
        self.head_calls = max(self.head_calls, scores.head_calls)
        if seen is not None:
            seen["policy"] = mx.stop_gradient(scores.values)
            if scores.entropy is not None:
                seen["entropies"] = mx.stop_gradient(scores.entropy)
        if inputs.advantages is None:
            raise ValueError("advantages must be there before the loss")
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

    def _pass(self, generation: Generation, steps: list[Step], number: int, learned: Learned) -> None:
        """Make the optimizer steps of one pass over the generation."""
        shape = (len(generation.lengths), steps[0].micro_batches[0].batch.width)
        learned.policy, learned.old = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        learned.entropy = np.zeros(shape, np.float32) if self.algorithm.needs_entropy else None
        learned.reference = np.zeros(shape, np.float32) if self.algorithm.needs_reference else None
        share = self._setting("entropy_share", default=1.0)
        for each in steps:
            one, around = each, functools.partial(self._dropout, number, len(learned.updates))
            if share < 1 and len(each.micro_batches) > 1:
                one = constants.entropy_threshold(
                    self.model, each, self.config.scoring_temperature(), share, around, head_rows=self._head_rows()
                )
            gradient: Any = None
            sums = np.zeros(4)
            for inputs in one.micro_batches:
                with around(inputs):
                    added, shares = self._gradient(inputs, one.totals, learned)
                gradient = added if gradient is None else tree_map(mx.add, gradient, added)
                mx.eval(gradient)
                sums += shares
            learned.updates.append(self._update(generation, one, number, gradient, sums))

    def _dropout(self, step: int, update: int, inputs: Inputs) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the adapters' dropout is on, with masks of their own for this micro-batch of this update."""
        adapter = self.config.adapter
        if not adapter.dropout:
            return contextlib.nullcontext()
        return dropout.drawn(self.model, adapter.seed, step, update, int(inputs.rows[0]))

    def _gradient(
        self, inputs: Inputs, totals: protocol.StepTotals, learned: Learned
    ) -> tuple[Any, NDArray[np.float64]]:
        """Return a micro-batch's share of the gradient, and of the loss with its policy, KL and entropy summands."""
        seen: dict[str, mx.array] = {}

        def loss() -> mx.array:
            result = self.algorithm.loss(self._scored(inputs, seen), totals)
            seen.update((name, mx.stop_gradient(getattr(result, name))) for name in ("value", "kl", "entropy"))
            seen["summand"] = mx.stop_gradient(result.policy)
            return result.value

        _, gradient = passes.loss_and_grad(self.model, loss)
        mx.eval(gradient, seen)
        if learned.policy is None or learned.old is None:
            raise ValueError("the arrays of a pass must be there before its micro-batches")
        learned.policy[inputs.rows] = np.array(seen["policy"])
        learned.old[inputs.rows] = np.array(seen["policy"] if inputs.old is None else inputs.old)
        if learned.reference is not None and inputs.reference is not None:
            learned.reference[inputs.rows] = np.array(inputs.reference)
        if learned.entropy is not None:
            learned.entropy[inputs.rows] = np.array(seen["entropies"])
        return gradient, np.array([float(seen[name]) for name in ("value", "summand", "kl", "entropy")])

    def _update(
        self, generation: Generation, one: Step, number: int, gradient: Any, sums: NDArray[np.float64]
    ) -> Update:
        """Clip and apply the gradient if it and the loss are finite."""
        norm = passes.global_norm(gradient)
        loss, policy, kl, entropy = sums.tolist()
        skipped = not guard.finite(loss, norm)
        if skipped:
            self._blame(generation, one, number)
        else:
            clipped = optimizers.clipped(gradient, norm, self.config.optimizer.max_gradient_norm)
            self.optimizer.update(self.model, clipped)
            mx.eval(self.model.trainable_parameters(), self.optimizer.state)
        return Update(loss, policy, kl, entropy, norm, skipped)

    def _blame(self, generation: Generation, one: Step, number: int) -> None:
        """Write the offending samples to a file, and stop unless the configuration says to skip."""

        def loss(inputs: Inputs) -> mx.array:
            return self.algorithm.loss(self._scored(inputs), one.totals).value

        rows = guard.offenders(self.model, one.micro_batches, loss, 2 if generation.group_size == 2 else 1)
        path = self.folder / f"nonfinite-step-{number}.json"
        guard.record(path, generation, rows, number)
        if self.config.loop.nonfinite == "stop":
            raise guard.NonFiniteError(
                f"step {number}: the loss or its gradient is not finite; {len(rows)} of {len(generation.lengths)} samples "
                f"do it alone, see {path}. To go on without such updates set loop.nonfinite = 'skip'"
            )
