"""Advantages of a recorded step against its rewards, with the settings that are written or that fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gates.families.advantages import program
from gates.model import Array, ConfigurationError
from gates.recorded.finding import Compared, Finding
from gates.recorded.loss import by_row
from gates.recorded.settings import ADVANTAGES
from gates.recorded.step import Step
from reference.oracle import advantages as oracle

QUANTITY = "group_advantages"
LIBRARIES = {  # docs/definitions.md, "Presets"
    ("group", 1, 1e-4, "add", "mean"): "TRL's default",
    ("batch", 1, 1e-4, "add", "mean"): 'TRL scale_rewards="batch"',
    ("group", 1, 1e-6, "add", "mean"): "verl adv_estimator=grpo",
    ("group", 0, 1e-8, "threshold", "mean"): "rlox",
    ("group", 0, 1e-8, "inside", "mean"): "mlxrl",
    ("group", 0, 1e-4, "add", "mean"): "mlx-lm-lora",
    ("none", None, None, None, "mean"): "Dr. GRPO",
    ("none", None, None, None, "leave-one-out"): "RLOO",
}
CENTRES = {
    "mean": "reward less the mean of its group",
    "leave-one-out": "leave-one-out",
    "batch": "reward less the mean of the batch",
    "none": "reward",
}
EPSILONS = (1e-4, 1e-6, 1e-8, 1e-5, 0.0)
Convention = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Given:
    """Rewards by prompt, and the advantages of the same rows.

    Attributes:
        rewards: (P, G) of the file's dtype; NaN is not scored, or no row.
        got: (P, G) float64.
        rows: (P, G) row of the file, −1 for none.
    """

    rewards: Array
    got: Array
    rows: Array


def judge(step: Step) -> Finding:
    """Return the verdict on the advantages."""
    missing = next((name for name in ("rewards", "advantages") if name not in step.file), "")
    if missing:
        return Finding(QUANTITY, "unsupported", f"the file has no tensor `{missing}`")
    if step.groups is None:
        return Finding(QUANTITY, "unsupported", "the file has no prompts: add the tensor `groups`, or `group_size`")
    values = _of_rows(step)
    if values is None:
        return Finding(
            QUANTITY, "unsupported", "the advantages differ within a row: no definition of theirs is judged yet"
        )
    given = _given(step, step.groups, values)
    asked = {name: step.file.settings.get(name) for name in ADVANTAGES}
    if asked["scale"] is not None:
        return _asked(step, given, asked)
    if _equal(given).all():
        return Finding(QUANTITY, "cannot tell", "no settings are written, and the rewards of each prompt are equal")
    return _identified(given)


def _of_rows(step: Step) -> Array | None:
    """Return (B,) advantages; None where a row's tokens have several."""
    if len(step.file.shapes["advantages"]) == 1:
        return step.file.read("advantages")
    try:
        return np.concatenate(
            [by_row(step, "advantages", step.slots("advantages", piece), piece) for piece in step.pieces()]
        )
    except ConfigurationError as error:
        if "one number a row" in str(error):
            return None
        raise


def _given(step: Step, rows: Array, values: Array) -> _Given:
    rewards = step.file.read("rewards")
    if np.isinf(rewards).any():
        row = int(np.flatnonzero(np.isinf(rewards))[0])
        raise ConfigurationError(
            f"{step.file.path}: tensor `rewards` is {rewards[row]} at [{row}], must be finite, or NaN for not scored"
        )
    absent = rows < 0
    table = np.where(absent, np.nan, rewards[rows]).astype(rewards.dtype)
    return _Given(table, np.where(absent, 0.0, values[rows].astype(np.float64)), rows)


def _compare(given: _Given, convention: Convention) -> tuple[Compared, Array, Array]:
    """Return the worst error, which elements are off, and what is wanted of each."""
    size = given.rewards.shape[1]
    flat = given.rewards.reshape(-1)
    want = oracle.group_advantages(flat, size, **convention).reshape(given.got.shape)
    with np.errstate(all="ignore"):
        limit = program.group_advantages(rewards=flat, group_size=size, **convention)["advantages"].reshape(
            given.got.shape
        )
    limit = np.where(_by_rule(given, convention), 0.0, limit)
    found, here = Compared("advantage"), given.rows >= 0
    order = np.argsort(given.rows[here])
    found.add(given.got[here][order], want[here][order], limit[here][order])
    with np.errstate(all="ignore"):
        off = here & ~((given.got == want) | (np.abs(given.got - want) <= limit) | np.isinf(limit))
    return found, off, want


def _equal(given: _Given) -> Array:
    """Return which rows are of a prompt whose scored rewards are all equal."""
    with np.errstate(all="ignore"):
        largest = np.nanmax(np.where(np.isnan(given.rewards), -np.inf, given.rewards), axis=1, keepdims=True)
        smallest = np.nanmin(np.where(np.isnan(given.rewards), np.inf, given.rewards), axis=1, keepdims=True)
    return np.broadcast_to(largest <= smallest, given.rewards.shape)


def _by_rule(given: _Given, convention: Convention) -> Array:
    """Return which advantages are 0 by rule: of equal rewards, unless the baseline is not their group's."""
    equal = _equal(given)
    return equal if convention["baseline"] in oracle.OF_GROUP else np.zeros_like(equal)


def _asked(step: Step, given: _Given, asked: Convention) -> Finding:
    try:
        found, off, _ = _compare(given, asked)
    except ValueError as error:
        raise ConfigurationError(f"{step.file.path}: {error}") from None
    if not off.any():
        alike = [words for _, words, _ in _fitting(given, skip=asked)]
        strength = "" if not alike else f"this step cannot tell it from {_listed(alike)}"
        return Finding(QUANTITY, "correct", found.words, strength=strength, numbers=_numbers(found))
    rare = _by_rule(given, asked) | np.isnan(given.rewards)
    if not (off & ~rare).any():
        return Finding(QUANTITY, "fragile", f"{_rare(given, off)}: {found.place}", numbers=_numbers(found))
    fitting = [words for _, words, _ in _fitting(given, skip=asked)]
    return Finding(
        QUANTITY, "wrong", found.words, _computes(fitting, f" (asked: {_words(asked)})"), numbers=_numbers(found)
    )


def _identified(given: _Given) -> Finding:
    found = list(_fitting(given))
    if not found:
        reason = "none of the known conventions fits; write `scale`, `ddof`, `eps`, `eps_mode` and `baseline`"
        return Finding(QUANTITY, "cannot tell", reason, "nothing that is known")
    convention, _, rare = found[0]
    compared, off, _ = _compare(given, convention)
    words = [one for _, one, _ in found]
    status: Any = "cannot tell" if len(words) > 1 else "fragile" if rare else "correct"
    reason = f"{_rare(given, off)}: {compared.place}" if status == "fragile" else compared.words
    if len(words) > 1:
        reason = "no settings are written, and several conventions fit this step"
    return Finding(QUANTITY, status, reason, _computes(words, ""), numbers=_numbers(compared))


def _rare(given: _Given, off: Array) -> str:
    equal = _equal(given)
    if (off & equal).any():
        largest = float(np.abs(np.where(off & equal, given.got, 0.0)).max())
        return f"equal rewards give up to {largest:.3g}, must be 0"
    return "a row that was not scored (NaN) has an advantage, must be 0"


def _fitting(given: _Given, skip: Convention | None = None) -> Iterator[tuple[Convention, str, bool]]:
    """Yield the conventions that fit where rewards vary, their words, and whether they fail on rare rewards.

    Of those that differ in ε alone and compute the same, up to the last bit, the first is yielded.
    """
    rare = _equal(given) | np.isnan(given.rewards)
    known: list[tuple[Any, Array]] = []
    if skip is not None:
        known.append((_without_epsilon(skip), _compare(given, skip)[2]))
    for convention in _conventions():
        if convention == skip:
            continue
        try:
            _, off, want = _compare(given, convention)
        except ValueError:  # such as leave-one-out of single rows
            continue
        key = _without_epsilon(convention)
        if (off & ~rare).any() or any(key == one and np.array_equal(want, other) for one, other in known):
            continue
        known.append((key, want))
        yield convention, _words(convention), bool(off.any())


def _without_epsilon(convention: Convention) -> Any:
    return convention["scale"], convention["ddof"], convention["baseline"]


def _conventions() -> Iterator[Convention]:
    """Yield the libraries' conventions first."""
    for key in LIBRARIES:
        yield dict(zip(ADVANTAGES, key, strict=True))
    for scale in ("group", "batch"):
        for baseline in oracle.OF_GROUP:
            for ddof in (1, 0):
                for eps in EPSILONS:
                    for mode in oracle.EPS_MODES:
                        key = (scale, ddof, eps, mode, baseline)
                        if key not in LIBRARIES:
                            yield dict(zip(ADVANTAGES, key, strict=True))


def _words(convention: Convention) -> str:
    scale, ddof, eps, mode, baseline = (convention[name] for name in ADVANTAGES)
    library = LIBRARIES.get((scale, ddof, eps, mode, baseline))
    named = f" ({library})" if library else ""
    if scale == "none":
        return f"{CENTRES[baseline]}, not divided{named}"
    centre = ", leave-one-out" if baseline == "leave-one-out" else ""
    of_batch = {"batch": "batch z-score", "none": "reward over the deviation of the batch"}
    whose = "group z-score" if scale == "group" else of_batch.get(baseline, "group mean taken off, batch deviation")
    return f"{whose}{centre} with ddof {ddof}, ε {eps:g} {mode}{named}"


def _computes(words: list[str], asked: str) -> str:
    if not words:
        return "nothing that is known"
    return f"{words[0]}{asked}" if len(words) == 1 else f"cannot tell {_listed(words)}"


def _listed(words: list[str]) -> str:
    shown = " or ".join(f"“{one}”" for one in words[:2])
    return shown if len(words) <= 2 else f"{shown} or {len(words) - 2} more"


def _numbers(found: Compared) -> dict[str, Any]:
    return {"error_in_limits": found.worst, "at": found.place, "elements": found.claimed}
