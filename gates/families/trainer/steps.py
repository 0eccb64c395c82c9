"""One update of a trainer beside its definition: the inputs of cases, and the coefficients that are recorded and expected.

A coefficient is the derivative of the minimised loss with respect to the log-prob of a token (docs/xray.md).
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gates.families.advantages.op import GROUP_ADVANTAGES
from gates.families.loss.op import POLICY_LOSS
from gates.families.preference.op import PREFERENCE_LOSS
from gates.families.trainer.op import TRAINING_STEP
from gates.model import Array, Recipe, SubjectFaultError, Trial, UnsupportedError
from gates.nearest import hint
from gates.xray import recording
from gates.xray.documents import PER_TOKEN
from gates.xray.fit import Fit, fit, quantile
from gates.xray.ranks import Update

GROUPS, ROWS = 3, 4  # prompts, and rows of each
PAIRS = ("dpo", "orpo", "cpo")  # trainers of preference pairs: the first row of a prompt is chosen, the second rejected
REFERENCE_FREE = ("orpo", "simpo", "cpo")
NATS = 4e-6  # of policy less old or reference: each is known to half of it, with logits up to 16 in float32
SUPERVISED = ("sft",)  # trainers without rewards: one row of each prompt
EOS = 2  # of the tiny models; another model's rows are then cut by the limit
LOSS = dict.fromkeys(
    (
        *(
            "epsilon_low",
            "epsilon_high",
            "delta",
            "kl_estimator",
            "kl_ratio",
            "kl_clamp",
            "max_length",
            "micro_batches",
        ),
        *("dapo_denominator", "cispo_bound", "sapo_temperature_positive", "sapo_temperature_negative"),
        *("ratio_level", "bound", "aggregation", "kl_aggregation", "count_eps"),
        *("vespo_k_positive", "vespo_lambda_positive", "vespo_k_negative", "vespo_lambda_negative"),
    )
)
ADVANTAGE = ("scale", "ddof", "eps", "eps_mode", "baseline")
OF_UPDATE = ("ratio", "optimizer", "learning_rate", "weight_decay", "gradient_clip", "temperature", "kl_in_reward")
PREFERENCE = ("beta", "label_smoothing", "lengths", "penalty", "margin", "nll")
WORDS = ("algorithm", "loss", "nll_tokens", *PREFERENCE, *LOSS, *ADVANTAGE, *OF_UPDATE)
OPTIONAL = (
    *("kl_clamp", "ratio_level", "bound", "aggregation", "kl_aggregation", "count_eps"),
    *("vespo_k_positive", "vespo_lambda_positive", "vespo_k_negative", "vespo_lambda_negative"),
)
FROM_LIBRARY = "build the tiny model with `pip install '.[trainer]'` in a checkout of Gates, or name one with --model"


def inputs(rng: np.random.Generator, *, trainer: str, settings: Mapping[str, Any], micro: int, updates: int) -> Any:
    """Return the inputs of a case: prompts and completions of many lengths, the last group with equal rewards.

    Some completions end, some are cut by the limit, and no two are equal.
    """
    size = 2 if trainer in PAIRS else 1 if trainer in SUPERVISED else ROWS
    total = GROUPS * ROWS

    def ids(count: int) -> list[int]:
        return [int(token) for token in rng.integers(20, 300, count)]

    prompts = [ids(int(length)) for length in rng.integers(3, 7, total // size)]
    lengths = [int(length) for length in rng.integers(2, 9, total)]
    completions = [[*ids(length), EOS] if row % 3 else ids(9) for row, length in enumerate(lengths)]
    rewards = rng.choice(np.arange(-4, 5) / 4, total).astype(np.float32)
    rewards[-size:] = rewards[-1]
    return {
        "model": Recipe("model", {}),
        "trainer": trainer,
        "settings": dict(settings),
        "prompts": prompts,
        "completions": completions,
        "rewards": rewards if size == ROWS else None,
        "group_size": size,
        "updates": updates,
        "micro_batch_rows": micro,
    }


@functools.lru_cache(maxsize=8)
def _built(spec: str) -> str:
    """Return the folder of a tiny model. The judge's process imports no framework, so another one builds it."""
    program = "import json, sys; from gates_reference import tiny; print(tiny.build(json.loads(sys.argv[1])))"
    done = subprocess.run(
        [sys.executable, "-c", program, spec], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise UnsupportedError(f"no model to train: {FROM_LIBRARY}")
    return done.stdout.strip().splitlines()[-1]


@dataclass(frozen=True)
class Trained:
    """What a trainer made of a case.

    Attributes:
        settings: in force, as the library says.
        metrics: of each update, as the library reports them.
        updates: as recorded.
        rows: of each update, for each row of the case, the columns of its whole tokens.
        padding: of each update, the columns of tokens that belong to no row.
    """

    settings: Mapping[str, Any]
    metrics: Mapping[str, Any]
    updates: Sequence[Update]
    rows: Sequence[Sequence[Array]]
    padding: Sequence[Array]


def trained(t: Trial) -> Trained:
    """Train the case's rows, once in a run for all gates.

    Raises:
        SubjectFaultError: an update was not made or not recorded, a row was not scored, or a setting is unknown.
    """
    model = t.inputs["model"]
    spec = dict(model.spec) if isinstance(model, Recipe) else dict(model)
    path = spec["path"] if "path" in spec else _built(json.dumps(spec))
    answer = t.got_once(TRAINING_STEP, **{**t.inputs, "model": {"path": path}}, instead={"model": spec})
    settings = words(answer["settings"])
    for name, data in answer["recording"].items():
        file = t.folder / "recording" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(np.asarray(data, np.uint8).tobytes())
    if not answer["recording"]:
        raise SubjectFaultError("value", "training_step made no optimizer step that the recorder saw")
    recorded = recording.load(t.folder / "recording")
    if len(recorded.updates) < t.inputs["updates"]:
        why = "; ".join(recorded.cannot) or "the recorder saw no more"
        raise SubjectFaultError(
            "value", f"training_step: {len(recorded.updates)} of {t.inputs['updates']} updates were recorded: {why}"
        )
    updates = recorded.updates[: t.inputs["updates"]]
    rows, padding = zip(*(_rows(update, t.inputs) for update in updates), strict=True)
    return Trained(settings, json.loads(answer["metrics"]), updates, rows, padding)


def words(text: str) -> dict[str, Any]:
    """Return the settings in force.

    Raises:
        SubjectFaultError: no object, or a word that is not known.
    """
    try:
        settings = json.loads(text)
        unknown = sorted(set(settings) - set(WORDS))
    except (ValueError, TypeError):
        raise SubjectFaultError("value", "settings must be a JSON object") from None
    if unknown:
        raise SubjectFaultError("value", f"settings: no word {unknown[0]!r}{hint(unknown[0], WORDS)}")
    return {name: value for name, value in settings.items() if value is not None}


def _rows(update: Update, case: Mapping[str, Any]) -> tuple[list[Array], Array]:
    """Return the columns of each row's tokens, and those of tokens that are in no row."""
    found, own = [], set[int]()
    size = case["group_size"]
    for index, completion in enumerate(case["completions"]):
        tokens = [*case["prompts"][index // size], *completion]
        for row in update.rows:
            start = int(np.flatnonzero(row.attended)[0]) if row.attended.any() else 0
            if list(row.ids[start : start + len(tokens)]) == tokens:
                found.append(row.columns[start : start + len(tokens)])
                own |= set(row.columns[start : start + len(tokens)].tolist())
                break
        else:
            raise SubjectFaultError("value", f"training_step: update {update.number} did not score row {index + 1}")
    tokens_only = np.array([kind in PER_TOKEN for kind in update.kinds], dtype=bool)
    return found, np.setdiff1d(np.flatnonzero(tokens_only), sorted(own - {-1}))


@dataclass(frozen=True)
class Compared:
    """The coefficients of an update, before its gradient was clipped, beside those of its definition.

    Attributes:
        columns: those of tokens that have a number.
        got: their coefficients.
        want: those of the definition, on both branches of a bound.
        limits: the largest error to expect of each.
    """

    columns: Array
    got: Array
    want: tuple[Array, Array]
    limits: Array

    @property
    def off(self) -> Array:
        """The error of each coefficient in limits; on a bound the nearer branch counts."""
        return np.asarray(np.min([np.abs(self.got - want) for want in self.want], axis=0) / self.limits)


def compared(t: Trial, made: Trained, index: int, **changes: Any) -> Compared:
    """Return an update's coefficients beside the definition of the settings in force, with changes."""
    update = made.updates[index]
    solved = fit(update)
    columns, limits = known(update, solved)
    settings = {**made.settings, **changes}
    want, moved = (_expected(t, made, index, settings, nats) for nats in (0.0, NATS))
    factor = clipped(made, index)
    got = solved.coefficients[columns] / factor
    room = np.minimum(*(np.abs(a - b)[columns] for a, b in zip(moved, want, strict=True)))
    return Compared(columns, got, (want[0][columns], want[1][columns]), limits / factor + room)


def clipped(made: Trained, index: int) -> float:
    """Return the factor of the clip of the norm: as recorded, else by the norm that the library reports."""
    document = made.updates[index].document
    if document.clip is not None:
        return document.clip.factor
    limit, norms = made.settings.get("gradient_clip"), made.metrics.get("gradient_norm") or ()
    if not limit or len(norms) <= index or not norms[index] > limit:
        return 1.0
    return float(document.gradient_norm / norms[index])


def known(update: Update, solved: Fit) -> tuple[Array, Array]:
    """Return the columns of tokens that have a number, and the largest error to expect of each."""
    tokens = np.array([kind in PER_TOKEN for kind in update.kinds], dtype=bool)
    columns = np.flatnonzero(tokens & np.isfinite(solved.coefficients) & np.isfinite(solved.errors))
    return columns, quantile(len(columns)) * np.maximum(solved.errors[columns], 1e-300)


def advantages(t: Trial, settings: Mapping[str, Any]) -> Array:
    """Return the advantages of the case's rows by the settings in force; without rewards 1, and −1 of rejected rows."""
    if t.inputs["rewards"] is None:
        rejected = np.arange(len(t.inputs["completions"])) % t.inputs["group_size"]
        return np.where(rejected == 0, 1.0, -1.0)
    chosen = {name: settings.get(name) for name in ADVANTAGE}
    return np.asarray(
        t.want(GROUP_ADVANTAGES, rewards=t.inputs["rewards"], group_size=t.inputs["group_size"], **chosen), np.float64
    )


def expected_loss(t: Trial, made: Trained, index: int) -> tuple[float, float]:
    """Return the loss that an update minimised, and the sum of the sizes of its terms."""
    rows = _log_probs(t, made, index)[0]
    return _loss(t, rows, made.settings).loss


def _expected(t: Trial, made: Trained, index: int, settings: Mapping[str, Any], nats: float) -> tuple[Array, Array]:
    """Return the derivative of the loss with respect to the log-prob of each column, on both branches of a bound.

    The policy's log-probs are taken so many nats higher.
    """
    rows, slots = _log_probs(t, made, index)
    rows = replace(rows, policy=rows.policy + nats * rows.scored)
    count = len(made.updates[index].kinds)
    first, second = (
        np.bincount(slots[rows.scored], side[rows.scored], count) for side in _loss(t, rows, settings).gradients
    )
    return first, second


def _log_probs(t: Trial, made: Trained, index: int) -> tuple[Rows, Array]:
    """Return the log-probs of an update's completions, and the column of each."""
    update, first = made.updates[index], made.updates[0]
    begins = [len(prompt) for prompt in t.inputs["prompts"] for _ in range(t.inputs["group_size"])]
    lengths = np.array([[len(columns)] for columns in made.rows[index]])
    places = np.arange(lengths.max())
    mask = (places >= np.array(begins)[:, None]) & (places < lengths)
    slots = np.full(mask.shape, -1)
    slots[places < lengths] = np.concatenate(made.rows[index])
    known_keys = dict(zip(first.keys, first.log_probs, strict=True))
    by_column = np.array([known_keys.get(key, np.nan) if key else np.nan for key in update.keys])

    def wide(values: Array) -> Array:
        return np.where(slots >= 0, values[np.maximum(slots, 0)], 0.0)

    if (slots[mask] < 0).any() or not np.isfinite(wide(by_column)[mask]).all():
        raise SubjectFaultError("value", f"training_step: update {update.number} scored no log-prob of some tokens")
    old, reference = (np.where(mask, wide(values), 0.0) for values in (by_column, _reference(update, slots[mask])))
    return Rows(wide(update.log_probs), old, reference, mask, slots >= 0), slots


@dataclass(frozen=True)
class Rows:
    """Log-probs of an update, (R, T), with the mask of completions and that of all tokens that are scored."""

    policy: Array
    old: Array
    reference: Array
    mask: Array
    scored: Array


@dataclass(frozen=True)
class Loss:
    """A loss: its gradients on both branches of a bound, and its value with the sum of the sizes of its terms."""

    gradients: tuple[Array, Array]
    loss: tuple[float, float]


def _loss(t: Trial, rows: Rows, settings: Mapping[str, Any]) -> Loss:
    """Return the loss that the settings name."""
    if t.inputs["trainer"] in PAIRS:
        chosen = {name: settings.get(name) for name in PREFERENCE}
        if settings.get("nll_tokens") == "all":
            chosen["attention_mask"] = rows.scored
        pairs = t.want(
            PREFERENCE_LOSS,
            policy=rows.policy,
            reference=None if settings["loss"] in REFERENCE_FREE else rows.reference,
            mask=rows.mask,
            loss=settings["loss"],
            **chosen,
        )
        return Loss((pairs.gradient, pairs.gradient), (float(pairs.loss), float(pairs.loss)))
    supervised = t.inputs["trainer"] in SUPERVISED
    if supervised:  # the mean of -log-probs: a policy loss on policy, with advantages of 1
        mean = {"dapo_denominator": "global"} if settings["aggregation"] == "token-mean" else {}
        settings = {"algorithm": "dapo" if mean else "grpo", **mean, "epsilon_low": 0.2, "epsilon_high": 0.2}
    constants = {name: settings.get(name) for name in LOSS if name not in OPTIONAL or name in settings}
    want = t.want(
        POLICY_LOSS,
        policy=rows.policy,
        old=None if supervised or settings.get("ratio") == "on-policy" else rows.old,
        reference=rows.reference,
        advantages=advantages(t, settings),
        mask=rows.mask,
        algorithm=settings["algorithm"],
        beta=settings.get("beta", 0.0),
        group_size=t.inputs["group_size"] if settings.get("dapo_denominator") == "group" else None,
        tokens_in_step=float(rows.mask.sum()) if settings.get("dapo_denominator") == "trl" else None,
        branch_dtype="float32",
        **constants,
    )
    value = float((want.gradient * rows.policy)[rows.mask].sum()) if supervised else float(want.loss)
    return Loss((want.gradient, want.gradient_other), (value, float(want.loss_scale)))


def _reference(update: Update, needed: Array) -> Array:
    """Return the log-probs of the reference: another model's or those without adapters, else of the weights at the start."""
    for by in ("another model", "trained model with adapters off"):
        for scorer, values in update.scored:
            if scorer.by == by and np.isfinite(values[needed]).all():
                return np.asarray(values, np.float64)
    return np.asarray(update.start_log_probs, np.float64)
