"""One update of a trainer beside its definition: the coefficients that are recorded, and those that are expected.

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

from gates.families.trainer.op import TRAINING_STEP
from gates.families.trainer.step_losses import ADVANTAGE, KTO, LOSS, PREFERENCE, Rows, loss
from gates.model import Array, Recipe, SubjectFaultError, Trial, UnsupportedError
from gates.nearest import hint
from gates.xray import recording
from gates.xray.documents import PER_TOKEN
from gates.xray.fit import Fit, fit, quantile
from gates.xray.ranks import Update

NATS = 4e-6  # of policy less old or reference: each is known to half of it, with logits up to 16 in float32
OF_UPDATE = ("ratio", "optimizer", "learning_rate", "weight_decay", "gradient_clip", "temperature", "kl_in_reward")
WORDS = ("algorithm", "loss", "nll_tokens", *PREFERENCE, *KTO, *LOSS, *ADVANTAGE, *OF_UPDATE)
FROM_LIBRARY = "build the tiny model with `pip install '.[trainer]'` in a checkout of Gates, or name one with --model"


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
        case: its inputs.
    """

    settings: Mapping[str, Any]
    metrics: Mapping[str, Any]
    updates: Sequence[Update]
    case: Mapping[str, Any]

    @property
    def rows(self) -> Sequence[Sequence[Array]]:
        """Of each update, for each row of the case, the columns of its whole tokens.

        Raises:
            SubjectFaultError: a row was not scored.
        """
        return [rows for rows, _ in self._columns]

    @property
    def padding(self) -> Sequence[Array]:
        """Of each update, the columns of tokens that belong to no row."""
        return [padding for _, padding in self._columns]

    @functools.cached_property
    def _columns(self) -> Sequence[tuple[list[Array], Array]]:
        return [_rows(update, self.case) for update in self.updates]


def trained(t: Trial) -> Trained:
    """Train the case's rows, once in a run for all gates.

    Raises:
        SubjectFaultError: an update was not made or not recorded, or a setting is unknown.
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
    return Trained(settings, json.loads(answer["metrics"]), updates, t.inputs)


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
            raise SubjectFaultError(
                "value", f"training_step: update {update.number} {_unscored(update, index, tokens)}"
            )
    tokens_only = np.array([kind in PER_TOKEN for kind in update.kinds], dtype=bool)
    return found, np.setdiff1d(np.flatnonzero(tokens_only), sorted(own - {-1}))


def _unscored(update: Update, index: int, tokens: Sequence[int]) -> str:
    """Return what is wrong with a row that no pass scored whole."""
    scored = [[token for token, seen in zip(row.ids, row.attended, strict=True) if seen] for row in update.rows]
    cut = tokens[:-1] in scored
    return f"scored row {index + 1} without its last token" if cut else f"did not score row {index + 1}"


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


def expected_losses(t: Trial, made: Trained, index: int) -> list[tuple[float, float]]:
    """Return the values that the minimised loss may have, each with the sum of the sizes of its terms.

    With a ratio that is 1 a loss is made of −A or of −A log π, which has the same gradient.
    """
    rows, settings = _log_probs(t, made, index)[0], made.settings
    value, size = loss(t, rows, settings, _reference_point(made, index)).loss
    if settings.get("ratio") != "on-policy":
        return [(value, size)]
    surrogate = loss(t, rows, {**settings, "beta": 0.0}, 0.0)
    terms = (surrogate.gradients[0] * rows.policy)[rows.mask]
    return [(value, size), (value - surrogate.loss[0] + float(terms.sum()), size + float(np.abs(terms).sum()))]


def _reference_point(made: Trained, index: int) -> float:
    """Return KTO's z0 of an update as the library reports it; else 0, which it is in the first update."""
    points = made.metrics.get("reference_point") or ()
    return float(points[index]) if index < len(points) else 0.0


def _expected(t: Trial, made: Trained, index: int, settings: Mapping[str, Any], nats: float) -> tuple[Array, Array]:
    """Return the derivative of the loss with respect to the log-prob of each column, on both branches of a bound.

    The policy's log-probs are taken so many nats higher.
    """
    rows, slots = _log_probs(t, made, index)
    rows = replace(rows, policy=rows.policy + nats * rows.scored)
    count = len(made.updates[index].kinds)
    sides = loss(t, rows, settings, _reference_point(made, index)).gradients
    first, second = (np.bincount(slots[rows.scored], side[rows.scored], count) for side in sides)
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


def _reference(update: Update, needed: Array) -> Array:
    """Return the log-probs of the reference: another model's or those without adapters, else of the weights at the start."""
    for by in ("another model", "trained model with adapters off"):
        for scorer, values in update.scored:
            if scorer.by == by and np.isfinite(values[needed]).all():
                return np.asarray(values, np.float64)
    return np.asarray(update.start_log_probs, np.float64)
