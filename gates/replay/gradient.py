"""Loss and gradient of each update, the gradient by difference quotients of a forward pass in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gates.model import Array
from gates.replay.coefficients import Coefficients, Counts, of_update
from gates.replay.log_probs import prompts, trained
from gates.replay.measure import Measures
from gates.replay.scored import Scorer
from gates.replay.trace import Step, Trace, Update

LOSS = "error of a loss, in the sum of its terms"
GRADIENT = "error of a gradient along a direction, in its norm"
SPLIT = "rows that the updates of a pass repeat or leave out"
QUANTITIES = (LOSS, GRADIENT, SPLIT)
DIRECTIONS = 3
STEP = (
    1e-5  # of the adapters along a direction: its square is 1e-10, and it moves log-probs by 1e9 roundings of float64
)


def replay(
    trace: Trace, scorer: Scorer, temperature: float, settings: Mapping[str, Any], rng: np.random.Generator
) -> Measures:
    """Recompute the loss and the gradient of each update."""
    found = Measures(dict.fromkeys(QUANTITIES, (0.0, "")))
    for step in trace.steps:
        if step.arrays:
            _split(trace, step, found)
        for update in step.updates:
            counts = _counts(trace, step, update, settings)
            want = of_update(trace.config["algorithm"]["name"], settings, update, counts)
            found.distance(
                LOSS, np.array(update.facts["loss"]), np.array(want.loss), update.name, scale=max(want.scale, 1e-30)
            )
            if not trace.config["adapter"]["dropout"]:  # whose masks are drawn: trainer.lora-dropout judges them
                _gradient(trace, step, update, want, scorer, temperature, settings, rng, found)
    return found


def _split(trace: Trace, step: Step, found: Measures) -> None:
    """Compare the rows of updates with whole prompts in order, once in each pass, and micro-batches with their size."""
    loop = trace.config["loop"]
    count = len(step.arrays["prompts"])
    size = len(step.arrays["lengths"]) // count
    parts = np.array_split(np.arange(count), min(loop["minibatches"], count))
    rows = [np.arange(part[0] * size, (part[-1] + 1) * size) for part in parts] * loop["iterations"]
    found.count(
        SPLIT, abs(len(rows) - len(step.updates)), f"step {step.number}: {len(step.updates)} updates, not {len(rows)}"
    )
    for update, want in zip(step.updates, rows, strict=False):
        found.count(
            SPLIT, int(not np.array_equal(update.rows, want)), f"{update.name}: rows {update.rows.tolist()[:8]}"
        )
        most = loop["micro_batch_rows"] or len(want)
        most += most % 2 if size == 2 else 0
        sizes = [min(most, len(want) - start) for start in range(0, len(want), most)]
        found.count(
            SPLIT,
            int(update.facts["micro_batches"] != sizes),
            f"{update.name}: micro-batches {update.facts['micro_batches']}",
        )


def _counts(trace: Trace, step: Step, update: Update, settings: Mapping[str, Any]) -> Counts:
    lengths = trained(trace, step, settings)
    share = len(update.rows) / len(lengths)
    size = len(lengths) // len(step.arrays["prompts"])
    return Counts(float(lengths.sum()) * share, size, trace.config["rollout"]["max_tokens"])


def _gradient(
    trace: Trace,
    step: Step,
    update: Update,
    want: Coefficients,
    scorer: Scorer,
    temperature: float,
    settings: Mapping[str, Any],
    rng: np.random.Generator,
    found: Measures,
) -> None:
    """Compare the gradient along random directions with the difference quotient of what the coefficients weigh."""
    lengths = trained(trace, step, settings)[update.rows]
    all_ids = prompts(step)
    ids = [all_ids[row] for row in update.rows]
    tokens = step.arrays["tokens"][update.rows, : want.of_policy.shape[1]]
    if set(update.gradient) != set(update.before):
        found.add(GRADIENT, float("inf"), f"{update.name}: of {len(update.gradient)} arrays, not {len(update.before)}")
        return
    norm = float(np.sqrt(sum((values.astype(np.float64) ** 2).sum() for values in update.gradient.values())))
    for number in range(DIRECTIONS):
        direction = {name: rng.standard_normal(values.shape) for name, values in update.before.items()}
        sides = [_moved(update.before, direction, sign * STEP) for sign in (1, -1)]
        scored = [
            scorer.scores(scorer.model(side, norms=update.before), ids, tokens, lengths, temperature) for side in sides
        ]
        slopes = [(above - below) / (2 * STEP) for above, below in zip(*scored, strict=True)]
        expected = float((want.of_policy * slopes[0]).sum() + (want.of_entropy * slopes[1]).sum())
        got = sum(float((update.gradient[name] * values).sum()) for name, values in direction.items())
        off = abs(got - expected) / max(norm, 1e-7)
        found.add(GRADIENT, off, f"{update.name}, direction {number + 1}: got {got:.6g}, want {expected:.6g}")


def _moved(adapters: Mapping[str, Array], direction: Mapping[str, Array], by: float) -> dict[str, Array]:
    return {name: values.astype(np.float64) + by * direction[name] for name, values in adapters.items()}
