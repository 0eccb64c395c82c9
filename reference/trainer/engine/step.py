"""One step of training with any `Algorithm`: rollout, rewards, advantages, constant passes, updates.

The engine knows the protocol and no algorithm. Every optimizer step divides by the counts of all its rows, so that its parts'
gradients add up to the gradient of the whole step.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_map
from numpy.typing import NDArray

from reference.trainer import checkpointing, logprobs
from reference.trainer.algorithms import protocol
from reference.trainer.config.read import Config
from reference.trainer.engine import guard, micro_batches, rollout
from reference.trainer.engine import scores as engine_scores
from reference.trainer.engine.micro_batches import Part, Step
from reference.trainer.engine.rollout import Generation
from reference.trainer.loop import optimizer as loop_optimizer
from reference.trainer.loop import passes
from reference.trainer.metrics.clock import Clock


@dataclass(frozen=True, slots=True)
class Update:
    """One optimizer step: the loss and its summands, and the norm of the gradient before clipping."""

    loss: float
    policy: float
    kl: float
    entropy: float
    gradient_norm: float
    skipped: bool


@dataclass(slots=True)
class Learned:
    """What the updates of one generation did. Arrays are (R, T) of the last pass, `reference` and `entropy` where they were computed."""

    advantages: NDArray[np.float32]
    updates: list[Update] = field(default_factory=list)
    policy: NDArray[np.float32] | None = None
    old: NDArray[np.float32] | None = None
    reference: NDArray[np.float32] | None = None
    entropy: NDArray[np.float32] | None = None


@dataclass(slots=True)
class Engine:
    """A model whose adapters train, and everything that stays the same from step to step."""

    model: Any
    algorithm: protocol.Algorithm
    optimizer: Any
    source: rollout.Source
    config: Config
    folder: Path
    clock: Clock
    head_calls: int = 0
    """In how many pieces the head ran in one forward pass of an update, at most; for the audit."""

    def generate(self, places: Callable[[int, int], Sequence[int]], round_: int) -> Generation:
        """Completions for one step, of the prompts that `places(offset, count)` names."""
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
        """Update the adapters by the generation; a generation without groups changes nothing."""
        if not generation.prompts:
            return Learned(np.zeros(0, np.float32))
        steps = micro_batches.cut(
            generation,
            self.config.loop.minibatches,
            self.config.loop.micro_batch_rows,
            self.config.rollout.max_tokens,
        )
        with self.clock("scoring"):
            learned = Learned(self._constants(generation, steps))
        loop_optimizer.set_learning_rate(self.optimizer, learning_rate)
        with self.clock("updates"), self._checkpointed():
            for _ in range(self.config.loop.iterations):
                self._pass(generation, steps, step, learned)
        return learned

    @contextlib.contextmanager
    def _checkpointed(self) -> Iterator[None]:
        """Per-layer checkpointing inside the block, if asked for: only a backward pass needs it, and a decode must not pay for it."""
        if not self.config.model.checkpoint_layers:
            yield
            return
        checkpointing.on(self.model)
        try:
            yield
        finally:
            checkpointing.off(self.model)

    def _constants(self, generation: Generation, steps: list[Step]) -> NDArray[np.float32]:
        """Fill in old, reference and sampling log-probs and the advantages, which are returned (R,)."""
        settings = self.config.algorithm
        temperature = self.config.scoring_temperature()
        several = self.config.loop.iterations * self.config.loop.minibatches > 1
        in_reward = self.algorithm.needs_reference and getattr(
            getattr(self.algorithm, "settings", None), "kl_in_reward", False
        )
        stored = settings.old_logprobs == "stored"
        need = engine_scores.Constants(
            old=not stored and (several or in_reward), reference=self.algorithm.needs_reference
        )
        recorded = generation.tempered if temperature == self.config.rollout.temperature else generation.model
        sampled = generation.behaviour if settings.sampling_logprobs == "behaviour" else recorded
        for part in (part for one in steps for part in one.parts):
            part.sampling = micro_batches.padded(sampled, part.rows, part.batch.width)
            part.old = micro_batches.padded(recorded, part.rows, part.batch.width) if stored else None
        engine_scores.fill(self.model, steps, temperature, need, head_rows=self._head_rows())
        old_kl = engine_scores.summed_difference(steps, len(generation.lengths)) if in_reward else None
        advantages = np.asarray(self.algorithm.advantages(generation.rewards, old_kl=old_kl), np.float32)
        for part in (part for one in steps for part in one.parts):
            part.advantages = mx.array(advantages[part.rows])
        return advantages

    def _head_rows(self) -> int | None:
        return self.config.loop.head_rows or None

    def _scored(self, part: Part, seen: dict[str, mx.array] | None = None) -> protocol.Scored:
        """A part with the policy's log-probs by a forward pass here and now; `seen` gets their values."""
        scores = logprobs.scored(
            self.model,
            part.batch,
            self.config.scoring_temperature(),
            entropy=self.algorithm.needs_entropy,
            head_rows=self._head_rows(),
        )
        self.head_calls = max(self.head_calls, scores.head_calls)
        if seen is not None:
            seen["policy"] = mx.stop_gradient(scores.values)
            if scores.entropy is not None:
                seen["entropies"] = mx.stop_gradient(scores.entropy)
        if part.advantages is None:
            raise ValueError("advantages must be there before the loss")
        return protocol.Scored(
            policy=scores.values,
            mask=scores.mask,
            advantages=part.advantages,
            groups=part.groups,
            old=part.old,
            reference=part.reference,
            sampling=part.sampling if self.algorithm.needs_sampling else None,
            entropy=scores.entropy,
        )

    def _pass(self, generation: Generation, steps: list[Step], number: int, learned: Learned) -> None:
        """One optimizer step for each of `steps`."""
        shape = (len(generation.lengths), steps[0].parts[0].batch.width)
        learned.policy, learned.old = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        learned.entropy = np.zeros(shape, np.float32) if self.algorithm.needs_entropy else None
        learned.reference = np.zeros(shape, np.float32) if self.algorithm.needs_reference else None
        share = getattr(getattr(self.algorithm, "settings", None), "entropy_share", 1.0)
        for each in steps:
            one = each
            if share < 1 and len(each.parts) > 1:
                one = engine_scores.entropy_threshold(
                    self.model, each, self.config.scoring_temperature(), share, head_rows=self._head_rows()
                )
            gradient: Any = None
            sums = np.zeros(4)
            for part in one.parts:
                added, shares = self._gradient(part, one.whole, learned)
                gradient = added if gradient is None else tree_map(mx.add, gradient, added)
                mx.eval(gradient)
                sums += shares
            learned.updates.append(self._update(generation, one, number, gradient, sums))

    def _gradient(self, part: Part, whole: protocol.Whole, learned: Learned) -> tuple[Any, NDArray[np.float64]]:
        """A part's share of the gradient, and of loss, policy, kl and entropy summands."""
        seen: dict[str, mx.array] = {}

        def loss() -> mx.array:
            result = self.algorithm.loss(self._scored(part, seen), whole)
            seen.update((name, mx.stop_gradient(getattr(result, name))) for name in ("value", "kl", "entropy"))
            seen["summand"] = mx.stop_gradient(result.policy)
            return result.value

        _, gradient = passes.loss_and_grad(self.model, loss)
        mx.eval(gradient, seen)
        if learned.policy is None or learned.old is None:
            raise ValueError("the arrays of a pass must be there before its parts")
        learned.policy[part.rows] = np.array(seen["policy"])
        learned.old[part.rows] = np.array(seen["policy"] if part.old is None else part.old)
        if learned.reference is not None and part.reference is not None:
            learned.reference[part.rows] = np.array(part.reference)
        if learned.entropy is not None:
            learned.entropy[part.rows] = np.array(seen["entropies"])
        return gradient, np.array([float(seen[name]) for name in ("value", "summand", "kl", "entropy")])

    def _update(
        self, generation: Generation, one: Step, number: int, gradient: Any, sums: NDArray[np.float64]
    ) -> Update:
        """Clip and apply the gradient, unless it or the loss is not finite."""
        norm = passes.global_norm(gradient)
        loss, policy, kl, entropy = sums.tolist()
        skipped = not guard.finite(loss, norm)
        if skipped:
            self._blame(generation, one, number)
        else:
            clipped = loop_optimizer.clipped(gradient, norm, self.config.optimizer.max_gradient_norm)
            self.optimizer.update(self.model, clipped)
            mx.eval(self.model.trainable_parameters(), self.optimizer.state)
        return Update(loss, policy, kl, entropy, norm, skipped)

    def _blame(self, generation: Generation, one: Step, number: int) -> None:
        """Write the offending samples to a file, and stop where the configuration says so."""

        def loss(part: Part) -> mx.array:
            return self.algorithm.loss(self._scored(part), one.whole).value

        rows = guard.offenders(self.model, one.parts, loss, 2 if generation.group_size == 2 else 1)
        path = self.folder / f"nonfinite-step-{number}.json"
        guard.record(path, generation, rows, number)
        if self.config.loop.nonfinite == "stop":
            raise guard.NonFiniteError(
                f"step {number}: the loss or its gradient is not finite; {len(rows)} of {len(generation.lengths)} samples "
                f"do it alone, see {path}. To go on without such updates set loop.nonfinite = 'skip'"
            )
