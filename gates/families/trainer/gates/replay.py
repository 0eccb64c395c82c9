"""Is each quantity of a whole run what its predecessors make of it?"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gates.families.trainer import replays
from gates.families.trainer.op import TRACED_RUN
from gates.families.trainer.replays import CASES, replayed
from gates.model import Bound, Evidence, Trial
from gates.registry import Check, gate
from gates.replay import advantages, gradient, log_probs, metrics, optimizer, rewards, rollouts
from gates.replay.limits import EXACT, because, limit
from gates.replay.measure import Measures


def _bounds(quantities: tuple[str, ...]) -> dict[str, Bound]:
    return {name: Bound("exact" if name in EXACT else "derived", because(name), limit(name)) for name in quantities}


def _evidence(t: Trial, found: Measures) -> Iterator[Evidence]:
    for quantity, (value, where) in found.worst.items():
        yield t.number(quantity, value, "<=", where=where)


def _gate(name: str, question: str, why: str, quantities: tuple[str, ...]) -> Callable[[Check], Check]:
    return gate(
        f"trainer.replay.{name}",
        level="definition",
        name="traced_run",
        question=question,
        why=why,
        ops=(TRACED_RUN,),
        cases=CASES,
        bounds=_bounds(quantities),
    )


@_gate(
    "rollouts",
    "Are prompts, draws, ends and the sampler's log-probs of a run those of its settings and of the model at that step?",
    "A prompt that is repeated, a key that is used twice, a filter that is lost or weights of the step before change what is "
    "learned, and every curve looks the same.",
    rollouts.QUANTITIES,
)
def of_rollouts(t: Trial) -> Iterator[Evidence]:
    """Draw every token again, from the float64 model with the adapters of that moment."""
    run = replayed(t)
    yield t.precondition(
        "completion tokens", sum(int(r.lengths.sum()) for s in run.trace.steps for r in s.rollouts), ">=", 40
    )
    yield from _evidence(t, rollouts.replay(run))


@_gate(
    "rewards",
    "Are rewards and totals those of the completions that they stand beside?",
    "A reward of another row, or of a text that nobody sampled, trains the wrong completion.",
    rewards.QUANTITIES,
)
def of_rewards(t: Trial) -> Iterator[Evidence]:
    """Reward the text of the recorded tokens again."""
    yield from _evidence(t, rewards.replay(replayed(t)))


@_gate(
    "advantages",
    "Does a step learn from the groups that it should, with the advantages of its settings?",
    "Groups that are dropped or kept by mistake, or a baseline of other rows, change the objective and no shape.",
    advantages.QUANTITIES,
)
def of_advantages(t: Trial) -> Iterator[Evidence]:
    """Choose the groups again from the recorded rewards, and compute their advantages."""
    yield from _evidence(t, advantages.replay(replayed(t)))


@_gate(
    "log-probs",
    "Are old, reference, policy log-probs and entropies those of the weights of that moment, at the temperature in force?",
    "A reference with adapters, an old policy of the wrong moment or a slot that is late make the ratio and the KL other numbers.",
    log_probs.QUANTITIES,
)
def of_log_probs(t: Trial) -> Iterator[Evidence]:
    """Score the recorded tokens in float64, with the recorded adapters."""
    yield from _evidence(t, log_probs.replay(replayed(t)))


@_gate(
    "gradient",
    "Is the gradient of each update that of the definition, over all rows of the step?",
    "Masks, denominators, micro-batches, entropy and KL meet in the gradient; a mistake between them is in no function.",
    gradient.QUANTITIES,
)
def of_gradient(t: Trial) -> Iterator[Evidence]:
    """Compare it along random directions with a difference quotient in float64."""
    run = replayed(t)
    norms = [update.facts["gradient_norm"] for step in run.trace.steps for update in step.updates]
    yield t.precondition("updates with a gradient", sum(norm > 0 for norm in norms), ">=", 1)
    yield from _evidence(t, gradient.replay(run, replays.rng(t)))


@_gate(
    "optimizer",
    "Do clip, learning rate and optimizer make the recorded adapters of the recorded gradients, across a resume too?",
    "A schedule that is off by a step, moments that are lost on resume or a decay that nobody asked for leave no trace in a loss.",
    optimizer.QUANTITIES,
)
def of_optimizer(t: Trial) -> Iterator[Evidence]:
    """Make every optimizer step again in float64."""
    yield from _evidence(t, optimizer.replay(replayed(t)))


@_gate(
    "metrics",
    "Are the numbers that a run reports those of what it did?",
    "People tune by these numbers.",
    metrics.QUANTITIES,
)
def of_metrics(t: Trial) -> Iterator[Evidence]:
    """Compute every number of every line again."""
    yield from _evidence(t, metrics.replay(replayed(t)))
