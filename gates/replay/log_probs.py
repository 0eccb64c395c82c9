"""The log-probs that a step compares: of the sampler, the old policy, the reference, and the policy in each update."""

from __future__ import annotations

import numpy as np

from gates.model import Array
from gates.replay import dropout
from gates.replay.forward.errors import UnsupportedError
from gates.replay.measure import Measures
from gates.replay.run import Run
from gates.replay.trace import Step, Update

OLD = "error of the old log-probs in nats"
REFERENCE = "error of the reference's log-probs in nats"
SAMPLER = "error of the sampler's log-probs that a step keeps, in nats"
POLICY = "error of the policy's log-probs in nats"
ENTROPY = "error of an entropy in nats"
MASK = "tokens that are masked and should train, or the reverse"
ROWS = "rows of an update that are not the step's"
LACKING = "log-probs that a step needs and lacks"
QUANTITIES = (OLD, REFERENCE, SAMPLER, POLICY, ENTROPY, MASK, ROWS, LACKING, *dropout.QUANTITIES)
CONSTANT = ("old", "reference", "sampling")


def replay(run: Run) -> Measures:
    """Recompute log-probs and entropies at the scoring temperature."""
    found = Measures(dict.fromkeys(QUANTITIES, (0.0, "")))
    seen: set[bytes] = set()
    for step, adapters in run.trace.adapters():
        if not step.arrays:
            continue
        lengths, every, scored = run.trained(step), np.arange(len(step.lengths)), run.scored(step)
        lacking = needed(run) - set(step.arrays)
        found.count(LACKING, len(lacking), f"step {step.number}: {', '.join(sorted(lacking))}")
        stored = run.trace.config["algorithm"]["old_logprobs"] == "stored"
        for quantity, name in ((SAMPLER, "sampling"), (OLD, "old"), (REFERENCE, "reference")):
            if name not in step.arrays:
                continue
            got = step.arrays[name]
            if name == "sampling" or (name == "old" and stored):
                want = _sampled(run, step, got.shape[1], kept=name == "old")
            else:
                model = run.model(adapters if name == "old" else {})
                want = run.scores(model, step, every, scored, got.shape[1])[0]
            if want is not None:
                live = np.arange(got.shape[1]) < scored[:, None]
                short = int(scored.max(initial=0)) > got.shape[1]
                found.count(LACKING, short, f"step {step.number}: {name} has {got.shape[1]} slots")
                found.distance(quantity, np.where(live, got, 0), np.where(live, want, 0), f"step {step.number}")
        for update in step.updates:
            dropout.compare(run, update, seen, found)
            _update(run, step, update, lengths[update.rows], found)
    return found


def needed(run: Run) -> set[str]:
    """Return which log-probs a step must have besides those of its policy.

    With dropout the weights of an off-policy correction need the old policy, which has none: the policy in an update has masks.
    """
    settings, config = run.trace.settings, run.trace.config
    corrected = settings.get("correction") is not None
    several = config["loop"]["iterations"] * config["loop"]["minibatches"] > 1
    names = {
        "old": several or run.kl_in_reward or (corrected and run.dropout),
        "reference": bool(settings.get("beta")) and not settings.get("reference_free"),
        "sampling": corrected,
    }
    return {name for name, wanted in names.items() if wanted}


def _sampled(run: Run, step: Step, width: int, *, kept: bool) -> Array | None:
    """Return the sampler's log-probs (R, width) of a step's rows as configured; `kept` as the old ones, without filters.

    None if nobody sampled the rows.
    """
    config = run.trace.config
    name = "temperature_scaled" if run.trace.temperature == config["rollout"]["temperature"] else "model"
    if config["algorithm"]["sampling_logprobs"] == "behaviour" and not kept:
        name = "behaviour"
    if any(name not in rollout.arrays for rollout in step.rollouts):
        return None
    return step.gathered(lambda rollout: rollout.arrays[name][:, :width])


def _update(run: Run, step: Step, update: Update, lengths: Array, found: Measures) -> None:
    where, arrays = update.name, update.arrays
    width = arrays["policy"].shape[1]
    want = np.arange(width) < lengths[:, None]
    found.count(MASK, arrays["mask"].astype(np.bool_) != want, where)
    found.count(
        MASK, int(lengths.max(initial=0)) > width, f"{where}: {width} slots for {lengths.max(initial=0)} tokens"
    )
    for name in CONSTANT:
        if name in arrays and name in step.arrays:
            kept = step.arrays[name][update.rows][:, :width]
            wrong = np.asarray((want[:, : kept.shape[1]] & (arrays[name][:, : kept.shape[1]] != kept)).any(1))
            found.count(ROWS, wrong, f"{where}: {name}")
    found.count(ROWS, arrays["advantages"] != step.arrays["advantages"][update.rows], f"{where}: advantages")
    try:
        values, entropies = run.update_scores(step, update, update.before, lengths, width)
    except UnsupportedError as error:
        found.leave_out(f"log-probs of updates with dropout: {error}")
        return
    found.distance(POLICY, np.where(want, arrays["policy"], 0), values, where)
    if "entropy" in arrays:
        found.distance(ENTROPY, np.where(want, arrays["entropy"], 0), entropies, where)
