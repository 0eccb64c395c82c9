"""Loss and gradient of each update, the gradient by difference quotients of a forward pass in float64."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gates.model import Array
from gates.replay.coefficients import Coefficients, Counts, of_update
from gates.replay.forward.errors import UnsupportedError
from gates.replay.measure import Measures
from gates.replay.run import Run
from gates.replay.trace import Step, Update

LOSS = "error of a loss, in the sum of its terms"
GRADIENT = "error of a gradient along a direction, in its norm"
SPLIT = "rows that the updates of a pass repeat or leave out"
QUANTITIES = (LOSS, GRADIENT, SPLIT)
DIRECTIONS = 3
STEP = 1e-7
"""Of the adapters along a direction: log-probs move by 1e7 roundings of float64, and seldom is another expert chosen."""


def replay(run: Run, rng: np.random.Generator) -> Measures:
    """Recompute the loss and the gradient of each update."""
    found = Measures(dict.fromkeys(QUANTITIES, (0.0, "")))
    for step in run.trace.steps:
        if step.arrays:
            _split(run, step, found)
        lengths = run.trained(step) if step.arrays else np.zeros(0)
        for update in step.updates:
            window = float(lengths.sum()) * len(update.rows) / len(lengths)
            counts = Counts(window, step.group_size, run.trace.config["rollout"]["max_tokens"])
            want = of_update(run.trace.settings["name"], run.trace.settings, update, counts)
            got, scale = update.facts["loss"], max(want.scale, 1e-30)
            found.distance(LOSS, np.array(got), np.array(want.loss), update.name, scale=scale)
            try:
                _gradient(run, step, update, want, lengths[update.rows], rng, found)
            except UnsupportedError as error:
                found.leave_out(f"gradients with dropout: {error}")
    return found


def _split(run: Run, step: Step, found: Measures) -> None:
    """Compare the rows of updates with whole prompts in order, once in each pass, and micro-batches with their size."""
    loop = run.trace.config["loop"]
    count, size = len(step.arrays["prompts"]), step.group_size
    parts = np.array_split(np.arange(count), min(loop["minibatches"], count))
    rows = [np.arange(part[0] * size, (part[-1] + 1) * size) for part in parts] * loop["iterations"]
    updates = step.updates
    found.count(SPLIT, abs(len(rows) - len(updates)), f"step {step.number}: {len(updates)} updates, not {len(rows)}")
    for update, want in zip(updates, rows, strict=False):
        wrong = not np.array_equal(update.rows, want)
        found.count(SPLIT, int(wrong), f"{update.name}: rows {update.rows.tolist()[:8]}")
        most = loop["micro_batch_rows"] or len(want)
        most += most % 2 if size == 2 else 0
        sizes = [min(most, len(want) - start) for start in range(0, len(want), most)]
        made = update.facts["micro_batches"]
        found.count(SPLIT, int(made != sizes), f"{update.name}: micro-batches of {made} rows, not {sizes}")


def _gradient(
    run: Run,
    step: Step,
    update: Update,
    want: Coefficients,
    lengths: Array,
    rng: np.random.Generator,
    found: Measures,
) -> None:
    """Compare the gradient along random directions with the difference quotient of what the coefficients weigh."""
    if set(update.gradient) != set(update.before):
        found.add(GRADIENT, float("inf"), f"{update.name}: of {len(update.gradient)} arrays, not {len(update.before)}")
        return
    norm = float(np.sqrt(sum((values.astype(np.float64) ** 2).sum() for values in update.gradient.values())))
    width = want.of_policy.shape[1]
    for number in range(DIRECTIONS):
        direction: dict[str, Array] = {
            name: np.asarray(rng.standard_normal(values.shape)) for name, values in update.before.items()
        }
        ends = [_moved(update.before, direction, by) for by in (STEP, -STEP)]
        scored = [run.update_scores(step, update, adapters, lengths, width) for adapters in ends]
        slopes = [(above - below) / (2 * STEP) for above, below in zip(*scored, strict=True)]
        expected = float((want.of_policy * slopes[0]).sum() + (want.of_entropy * slopes[1]).sum())
        got = sum(float((update.gradient[name] * values).sum()) for name, values in direction.items())
        off = abs(got - expected) / max(norm, 1e-7)
        found.add(GRADIENT, off, f"{update.name}, direction {number + 1}: got {got:.6g}, want {expected:.6g}")


def _moved(adapters: Mapping[str, Array], direction: Mapping[str, Array], by: float) -> dict[str, Array]:
    return {name: values.astype(np.float64) + by * direction[name] for name, values in adapters.items()}
