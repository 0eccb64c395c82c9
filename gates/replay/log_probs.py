"""The log-probs that a step compares: of the sampler, the old policy, the reference, and the policy in each update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gates.model import Array
from gates.replay.measure import Measures
from gates.replay.scored import Scorer
from gates.replay.trace import Step, Trace, Update

OLD = "error of the old log-probs in nats"
REFERENCE = "error of the reference's log-probs in nats"
SAMPLER = "error of the sampler's log-probs that a step keeps, in nats"
POLICY = "error of the policy's log-probs in nats"
ENTROPY = "error of an entropy in nats"
MASK = "tokens that are masked and should train, or the reverse"
ROWS = "rows of an update that are not the step's"
QUANTITIES = (OLD, REFERENCE, SAMPLER, POLICY, ENTROPY, MASK, ROWS)


def replay(trace: Trace, scorer: Scorer, temperature: float, settings: Mapping[str, Any]) -> Measures:
    """Recompute log-probs and entropies at the scoring temperature."""
    found = Measures(dict.fromkeys(QUANTITIES, (0.0, "")))
    base = scorer.model({})
    for step, adapters in trace.adapters():
        if not step.arrays:
            continue
        where = f"step {step.number}"
        ids, lengths = prompts(step), step.arrays["lengths"]
        tokens = step.arrays["tokens"][:, : max(int(lengths.max()), 1)]
        live = np.arange(tokens.shape[1]) < lengths[:, None]

        def same(quantity: str, got: Array, want: Array, at: str, live: Array = live) -> None:
            found.distance(quantity, np.where(live, got, 0.0), np.where(live, want, 0.0), at)

        if (sampled := _sampled(trace, step, temperature)) is not None and "sampling" in step.arrays:
            same(SAMPLER, step.arrays["sampling"], sampled[:, : tokens.shape[1]], where)
        if "old" in step.arrays:
            stored = trace.config["algorithm"]["old_logprobs"] == "stored"
            scored = scorer.scores(scorer.model(adapters), ids, tokens, lengths, temperature)[0]
            same(OLD, step.arrays["old"], sampled if stored and sampled is not None else scored, where)
        if "reference" in step.arrays:
            scored = scorer.scores(base, ids, tokens, lengths, temperature)[0]
            same(REFERENCE, step.arrays["reference"], scored, where)
        for update in step.updates:
            _update(trace, step, update, scorer, temperature, settings, found)
    return found


def prompts(step: Step) -> list[Array]:
    """Return the prompt of each row that a step learns from."""
    known = {
        int(prompt): ids for rollout in step.rollouts for prompt, ids in zip(rollout.prompts, rollout.ids, strict=True)
    }
    size = len(step.arrays["lengths"]) // len(step.arrays["prompts"])
    return [known[int(prompt)] for prompt in step.arrays["prompts"] for _ in range(size)]


def _sampled(trace: Trace, step: Step, temperature: float) -> Array | None:
    """Return the sampler's log-probs (R, T) that are configured for the rows of a step; None if nobody sampled them."""
    if trace.config["algorithm"]["sampling_logprobs"] == "behaviour":
        name = "behaviour"
    else:
        name = "temperature_scaled" if temperature == trace.config["rollout"]["temperature"] else "model"
    rows: dict[tuple[int, bytes], Array] = {}
    for rollout in step.rollouts:
        if name not in rollout.arrays:
            return None
        for row, values in enumerate(rollout.arrays[name]):
            key = (int(rollout.prompts[row // rollout.group_size]), rollout.completion(row).tobytes())
            rows[key] = values
    size = len(step.arrays["lengths"]) // len(step.arrays["prompts"])
    tokens = step.arrays["tokens"]
    keys = [
        (int(step.arrays["prompts"][row // size]), tokens[row][tokens[row] >= 0].tobytes())
        for row in range(len(tokens))
    ]
    return np.stack([rows[key] for key in keys]) if all(key in rows for key in keys) else None


def trained(trace: Trace, step: Step, settings: Mapping[str, Any]) -> Array:
    """Return the number of tokens (R,) of each row that train."""
    lengths = np.array([int((row >= 0).sum()) for row in step.arrays["tokens"]])
    if not settings.get("mask_truncated_completions"):
        return lengths
    ends = {*trace.eos_ids, *trace.config["rollout"]["stop_ids"]}
    ended = [row[n - 1] in ends for row, n in zip(step.arrays["tokens"], lengths, strict=True)]
    return np.where(ended, lengths, 0)


def _update(
    trace: Trace,
    step: Step,
    update: Update,
    scorer: Scorer,
    temperature: float,
    settings: Mapping[str, Any],
    found: Measures,
) -> None:
    where = f"{update.name}"
    lengths = trained(trace, step, settings)[update.rows]
    width = update.arrays["policy"].shape[1]
    want = np.arange(width) < lengths[:, None]
    mask = update.arrays["mask"].astype(np.bool_)
    found.count(MASK, mask != want, where)
    for name in ("old", "reference", "sampling"):
        if name in update.arrays:
            of_step = step.arrays[name][update.rows] if name in step.arrays else update.arrays["policy"]
            wrong = (np.where(want, update.arrays[name] != of_step, False)).any(1)  # noqa: FBT003
            found.count(ROWS, wrong, f"{where}: {name}")
    found.count(ROWS, update.arrays["advantages"] != step.arrays["advantages"][update.rows], f"{where}: advantages")
    if trace.config["adapter"]["dropout"]:
        return  # the pass has a mask that is drawn; trainer.lora-dropout.matches-definition judges it
    all_ids = prompts(step)
    ids = [all_ids[row] for row in update.rows]
    tokens = step.arrays["tokens"][update.rows, :width]
    values, entropies = scorer.scores(scorer.model(update.before), ids, tokens, lengths, temperature)
    found.distance(POLICY, np.where(want, update.arrays["policy"], 0.0), values, where)
    if "entropy" in update.arrays:
        found.distance(ENTROPY, np.where(want, update.arrays["entropy"], 0.0), entropies, where)
