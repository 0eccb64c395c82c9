"""Which prompts were rolled out, and whether each token is the one that its key draws from the model's own distribution."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gates.model import Array
from gates.replay.forward.language_model import LanguageModel
from gates.replay.measure import Measures
from gates.replay.run import Run
from gates.replay.trace import Rollout, Trace
from gates_reference.oracle.filters import filtered_logprobs, token_intervals
from gates_reference.oracle.logprobs import log_softmax
from gates_reference.oracle.philox import uniforms, xtc_coins

ROOM = 2e-4  # of a probability, and nats of a log-prob: what float32 does to logits up to some tens
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "xtc_probability", "xtc_threshold", "repetition_penalty", "order")
WHOLE = "prompts that an epoch repeats or leaves out"
ORDERED = "epochs in the order of the data, or in that of another epoch"
TEXT = "prompts or given completions whose tokens are not those of their text"
STOPS = "end tokens of the model that are missing, or not its own"
ASKED = "settings of a request that are not those in force"
KEYS = "draws whose key was used before"
ENDS = "rows that go on past an end token, or stop before one"
DRAWN = "tokens that their key does not draw"
RECORDED = "error of the sampler's log-probs in nats"
QUANTITIES = (WHOLE, ORDERED, TEXT, STOPS, ASKED, KEYS, ENDS, DRAWN, RECORDED)


def replay(run: Run) -> Measures:
    """Recompute the rollouts of a run and of its evaluations."""
    found = Measures(dict.fromkeys(QUANTITIES, (0.0, "")))
    trace = run.trace
    _order(trace, found)
    ends = end_ids(run.folder)
    found.count(STOPS, len(ends ^ set(trace.eos_ids)), f"got {sorted(trace.eos_ids)}, want {sorted(ends)}")
    seen: set[tuple[int, ...]] = set()
    for where, rollout, adapters in _every(trace):
        _texts(run, rollout, where, found)
        _asked(trace, rollout, where, found)
        _keys(rollout, where, seen, found)
        if rollout.asked is not None:
            _ends(rollout, run, where, found)
            _drawn(rollout, run.model(adapters), where, found)
    return found


def _every(trace: Trace) -> Iterator[tuple[str, Rollout, Mapping[str, Array]]]:
    """Yield each rollout with its name and the adapters that drew it."""
    after: dict[int, Mapping[str, Array]] = {}
    for step, adapters in trace.adapters():
        for number, rollout in enumerate(step.rollouts):
            yield f"step {step.number}" + (f", rollout {number + 1}" if number else ""), rollout, adapters
        after[step.number] = step.updates[-1].after if step.updates else adapters
    for evaluation in trace.evaluations:
        for rollout in evaluation.rollouts:
            yield f"evaluation after step {evaluation.number}", rollout, after[evaluation.number]


def _order(trace: Trace, found: Measures) -> None:
    """Compare the prompts of all rollouts with epochs: each holds every prompt once, and with shuffling in an order of its own."""
    known = sorted(trace.prompts["train"])
    drawn = [int(prompt) for step in trace.steps for rollout in step.rollouts for prompt in rollout.prompts]
    epochs = [drawn[start : start + len(known)] for start in range(0, len(drawn), len(known))]
    for number, epoch in enumerate(epochs):
        repeated = len(epoch) - len(set(epoch) & set(known))
        found.count(WHOLE, repeated, f"epoch {number + 1}: prompts {epoch[:8]}")
        same = epoch == known[: len(epoch)]
        if not trace.config["data"]["shuffle"]:
            found.count(ORDERED, int(not same), f"epoch {number + 1}: shuffle is off")
        elif len(epoch) >= 4:  # fewer are equal by chance
            again = any(epoch == other[: len(epoch)] for other in epochs[:number])
            found.count(ORDERED, int(same or again), f"epoch {number + 1}")
    for evaluation in trace.evaluations:
        held_out = sorted(int(prompt) for rollout in evaluation.rollouts for prompt in rollout.prompts)
        wanted = sorted(trace.prompts["validation"])
        found.count(
            WHOLE, int(held_out != wanted), f"evaluation after step {evaluation.number}: prompts {held_out[:8]}"
        )


def end_ids(folder: Path) -> set[int]:
    """Return the tokens at which a model ends: those of generation_config.json, else config.json, else the tokenizer's."""
    for name in ("generation_config.json", "config.json"):
        content = json.loads((folder / name).read_text(encoding="utf-8")) if (folder / name).exists() else {}
        if (ends := content.get("eos_token_id")) is not None:
            return set(ends) if isinstance(ends, list) else {int(ends)}
    return {_own_end(folder)}


def _own_end(folder: Path) -> int:
    """Return the tokenizer's own end token, with which its text ends."""
    word = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))["eos_token"]
    tokens = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
    return next(int(token["id"]) for token in tokens if token["content"] == word)


def _texts(run: Run, rollout: Rollout, where: str, found: Measures) -> None:
    """Encode the prompts, and completions of the data, again; prompts of a file are compared with their rows too."""
    data = run.trace.config["data"]
    rows = run.rows
    for place, (index, text) in enumerate(zip(rollout.prompts.tolist(), rollout.texts["prompts"], strict=True)):
        at = f"{where}, prompt {index}: {text!r}"
        found.count(TEXT, int(rows is not None and rows[index][data["prompt_column"]] != text), at)
        if not data["chat"]:
            found.count(TEXT, int(run.tokenizer.encode(text).ids != rollout.ids[place].tolist()), at)
        if rollout.asked is None and rows is not None:
            for side, column in enumerate(("chosen_column", "rejected_column")):
                ids = run.tokenizer.encode(rows[index][data[column]], add_special_tokens=False).ids
                given = rollout.completion(2 * place + side).tolist()
                found.count(TEXT, int(given != [*ids, _own_end(run.folder)]), f"{at}, {data[column]}: {given}")


def _asked(trace: Trace, rollout: Rollout, where: str, found: Measures) -> None:
    """Compare a request with the settings of the run."""
    if rollout.asked is None:
        return
    settings = trace.config["rollout"]
    words = [*SAMPLING, "max_tokens", "seed", "kv_bits"]
    wrong = [word for word in words if rollout.asked[word] != settings[word]]
    found.count(ASKED, len(wrong), f"{where}: {', '.join(wrong)}")
    ends = sorted({*trace.eos_ids, *settings["stop_ids"]})
    found.count(ASKED, int(sorted(rollout.asked["eos_ids"]) != ends), f"{where}: end tokens {rollout.asked['eos_ids']}")
    found.count(ASKED, int(rollout.group_size != settings["samples_per_prompt"]), f"{where}: samples of a prompt")


def _keys(rollout: Rollout, where: str, seen: set[tuple[int, ...]], found: Measures) -> None:
    if rollout.asked is None:
        return
    prompts = np.repeat(rollout.prompts, rollout.group_size)
    for row, (prompt, sample) in enumerate(rollout.arrays["keys"].tolist()):
        key = (rollout.asked["seed"], rollout.asked["round"], prompt, sample)
        found.count(KEYS, int(key in seen or prompt != prompts[row]), f"{where}, row {row + 1}: {key}")
        seen.add(key)


def _ends(rollout: Rollout, run: Run, where: str, found: Measures) -> None:
    """Compare lengths with the first end token, and with the most tokens of a row."""
    most = run.trace.config["rollout"]["max_tokens"]
    for row, tokens in enumerate(rollout.tokens.tolist()):
        first = next((place + 1 for place, token in enumerate(tokens) if token in run.end_ids), 0)
        length = int(rollout.lengths[row])
        right = length == (first or most) and bool(rollout.ended[row]) == bool(first)
        past = any(token >= 0 for token in tokens[length:]) or any(token < 0 for token in tokens[:length])
        found.count(ENDS, int(not right or past), f"{where}, row {row + 1}: {length} tokens, the first end at {first}")


def _drawn(rollout: Rollout, model: LanguageModel, where: str, found: Measures) -> None:
    """Compare tokens and recorded log-probs with the distribution at each position."""
    asked = dict(rollout.asked or {})
    size = rollout.group_size
    joined = [
        np.concatenate([rollout.ids[row // size], rollout.completion(row)]) for row in range(len(rollout.lengths))
    ]
    width = max(map(len, joined))
    ids = np.stack([np.pad(row, (0, width - len(row))) for row in joined])
    hidden = model.hidden(ids)
    for row, tokens in enumerate(joined):
        start, count = len(rollout.ids[row // size]), int(rollout.lengths[row])
        logits = model.head(hidden[row, start - 1 : start - 1 + count])
        drawn = tokens[start:]
        at = f"{where}, row {row + 1}"
        _logprobs(rollout, row, logits, drawn, asked["temperature"], at, found)
        key = rollout.arrays["keys"][row]
        u = uniforms(asked["seed"], asked["round"], key[0], key[1], np.arange(count))
        coins = xtc_coins(asked["seed"], asked["round"], key[0], key[1], np.arange(count))
        right = np.zeros(count, np.bool_)
        nearest = np.full(count, np.inf)
        history = np.stack([np.concatenate([tokens[: start + t], np.full(count - t, tokens[0])]) for t in range(count)])
        for variant in _variants(asked):
            behaviour = _filtered(logits, variant, coins, history)
            low, high = (ends[np.arange(count), drawn] for ends in token_intervals(behaviour))
            possible = np.isfinite(behaviour[np.arange(count), drawn])
            right |= possible & (u >= low - ROOM) & (u <= high + ROOM)
            with np.errstate(invalid="ignore"):
                off = np.abs(rollout.arrays["behaviour"][row, :count] - behaviour[np.arange(count), drawn])
            nearest = np.fmin(nearest, np.where(possible, off, np.inf))
        first = int(np.argmin(right)) if count else 0
        found.count(DRAWN, ~right, f"{at}, token {first + 1}: {int(drawn[first]) if count else ''}")
        if right.any():
            found.add(RECORDED, float(nearest[right].max()), f"{at}: after the filters")


def _variants(asked: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the settings, and those with each threshold moved by what float32 may move a probability."""
    yield dict(asked)
    for name, off in (("top_p", 1.0), ("min_p", 0.0)):
        if asked[name] != off:
            yield from ({**asked, name: min(asked[name] * (1 + sign * ROOM), 1.0)} for sign in (-1, 1))
    if asked["xtc_probability"]:
        yield from ({**asked, "xtc_threshold": asked["xtc_threshold"] * (1 + sign * ROOM)} for sign in (-1, 1))


def _filtered(logits: Array, asked: Mapping[str, Any], coins: Array, history: Array) -> Array:
    penalised = asked["repetition_penalty"] != 1.0
    return filtered_logprobs(
        logits,
        **{name: asked[name] for name in SAMPLING},
        xtc_coin=coins if asked["xtc_probability"] else None,
        history=history if penalised else None,
        ties="lower-id",
    )


def _logprobs(
    rollout: Rollout, row: int, logits: Array, drawn: Array, temperature: float, where: str, found: Measures
) -> None:
    """Compare the recorded log-probs of the model at temperature 1, and at the sampler's."""
    for name, scale in (("model", 1.0), ("temperature_scaled", temperature)):
        if scale > 0:
            want = log_softmax(logits, temperature=scale)[np.arange(len(drawn)), drawn]
            found.distance(RECORDED, rollout.arrays[name][row, : len(drawn)], want, f"{where}: {name}")
