"""Is each quantity of a whole run what its predecessors make of it?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from gates.families.trainer import replays
from gates.families.trainer.op import TRACED_RUN
from gates.families.trainer.replays import CASES, replayed
from gates.model import Bound, Evidence, Trial
from gates.registry import Check, gate
from gates.replay import advantages, gradient, log_probs, metrics, optimizer, rewards, rollouts
from gates.replay.measure import Measures

NATS = "a forward pass in float32 errs by up to 3e-5 nats on models of this size (reference/gates_reference/tiny.py), here by six times that"
PREDECESSOR = "it is read from the trace, so that no rounding lies between"
EXACT: Mapping[str, str] = {
    rollouts.WHOLE: "an epoch has each prompt once",
    rollouts.ORDERED: "with shuffling each epoch has an order of its own, else that of the data",
    rollouts.TEXT: "a tokenizer gives one answer",
    rollouts.STOPS: "the model's files name them",
    rollouts.ASKED: "what is asked is what is configured",
    rollouts.KEYS: "equal keys draw equal completions",
    rollouts.ENDS: "a row ends at its first end token, or at the limit",
    rollouts.DRAWN: "a draw is a function of its key and the distribution, but for 2e-4 of a probability",
    rewards.TEXT: "rewards read what was sampled",
    advantages.KEPT: PREDECESSOR,
    advantages.ROUNDS: "a step rolls out again while it has too few groups, and no longer",
    log_probs.MASK: "a row trains on its own tokens, up to the one that ends it",
    log_probs.ROWS: PREDECESSOR,
    gradient.SPLIT: "each pass takes every row once, in micro-batches of the configured size",
    optimizer.KEPT: "adapters change in updates only",
    optimizer.LAYERS: "adapters are where they were configured",
    optimizer.BEGIN: "B = 0, so that training begins at the base",
    metrics.NAMES: "every number has a definition",
    metrics.LINES: "a step has one line, in order",
    metrics.SHOWN: PREDECESSOR,
}
DERIVED: Mapping[str, tuple[float, str]] = {
    rollouts.RECORDED: (2e-4, NATS),
    log_probs.OLD: (2e-4, NATS),
    log_probs.REFERENCE: (2e-4, NATS),
    log_probs.POLICY: (2e-4, NATS),
    log_probs.ENTROPY: (2e-4, NATS),
    log_probs.SAMPLER: (2e-5, "a log-prob of the sampler, up to 100 nats, is rounded to float32 once"),
    rewards.RAW: (1e-12, "a handful of float64 operations on small numbers"),
    rewards.TOTAL: (1e-12, "a weighted sum of a few float64 numbers"),
    advantages.ADVANTAGE: (1e-5, "float32 rounds an advantage; of nearly equal rewards the deviation loses two digits"),
    gradient.LOSS: (1e-5, "a sum of up to 96 terms in float32, each with a few roundings"),
    gradient.GRADIENT: (
        1e-4,
        "float32 rounds a backward pass to 3e-6 of the gradient's norm; along a direction of normal numbers it is five times that once in a million",
    ),
    optimizer.RATE: (1e-6, "the rate is a float32 in the optimizer"),
    optimizer.NORM: (1e-5, "squares are summed in float32"),
    optimizer.STEPPED: (1.0, "the unit is the rounding of the step: 64 operations, and 1 − β₂ᵗ in float32"),
    metrics.NUMBER: (1e-5, "means of float32 numbers, in float64"),
}


def _bounds(quantities: tuple[str, ...]) -> dict[str, Bound]:
    return {
        name: Bound("exact", EXACT[name], 0) if name in EXACT else Bound("derived", DERIVED[name][1], DERIVED[name][0])
        for name in quantities
    }


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
    yield t.precondition("updates with a gradient", sum(norm > 0 for norm in norms), ">=", 3)
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
