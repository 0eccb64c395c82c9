"""Compare the advantages of a recorded step with its rewards, under the recorded or the identified convention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from gates.families.advantages import program
from gates.model import Array, ConfigurationError
from gates.recorded import choices, tokenwise
from gates.recorded.finding import Compared, Finding, Status
from gates.recorded.loss import by_row
from gates.recorded.settings import ADVANTAGES
from gates.recorded.step import Step
from gates_reference.oracle import advantages as oracle

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
VARIED = 0.01  # least spread of a prompt whose advantages rounding cannot change by `ROUGH`
ROUGH = 0.01  # of the largest advantage
EPSILONS = (1e-4, 1e-6, 1e-8, 1e-5, 0.0)
Convention = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Groups:
    """Rewards by prompt, and the advantages of the same rows.

    Attributes:
        rewards: (P, G) in the file's dtype; NaN for unscored or absent rows.
        got: (P, G) float64.
        rows: (P, G) row of the file, −1 for absent rows.
        trained: (P, G), whether a row is present and has tokens; the advantages of other rows enter nothing.
        tokens: (P, G), the tokens of each row.
    """

    rewards: Array
    got: Array
    rows: Array
    trained: Array
    tokens: Array

    def of(self, kept: Any) -> _Groups:
        """Return some prompts, given as a mask."""
        return _Groups(*(x[kept] for x in (self.rewards, self.got, self.rows, self.trained, self.tokens)))


def judge(step: Step) -> Finding:
    """Return the verdict on the advantages."""
    missing = next((name for name in ("rewards", "advantages") if name not in step.file), "")
    if missing:
        return Finding(QUANTITY, "unsupported", f"the file has no tensor `{missing}`")
    written = {name: step.file.settings.get(name) for name in ADVANTAGES}
    if step.file.settings.get("statistics") == "tokens":
        if not 0 < step.tokens <= tokenwise.MOST:
            return Finding(QUANTITY, "unsupported", f"the file has no `mask`, or more than {tokenwise.MOST} tokens")
        written["statistics"] = "tokens"
    if step.groups is None:
        return Finding(QUANTITY, "unsupported", "the file has no prompts: add the tensor `groups`, or `group_size`")
    values = _by_row(step)
    if values is None:
        return Finding(
            QUANTITY, "unsupported", "the advantages differ within a row: no definition of theirs is judged yet"
        )
    return _judged(step, _groups(step, step.groups, values), written)


def _judged(step: Step, groups: _Groups, written: Convention) -> Finding:
    if written["scale"] is not None:
        return _against_settings(step, groups, written)
    if _equal(groups).all():
        return Finding(QUANTITY, "cannot tell", "no settings are written, and the rewards of each prompt are equal")
    return _identified(groups)


def _by_row(step: Step) -> Array | None:
    """Return (B,) advantages, or None if the tokens of a row differ."""
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


def _groups(step: Step, rows: Array, values: Array) -> _Groups:
    rewards = step.file.read("rewards")
    if np.isinf(rewards).any():
        row = int(np.flatnonzero(np.isinf(rewards))[0])
        raise ConfigurationError(
            f"{step.file.path}: tensor `rewards` is {rewards[row]} at [{row}], must be finite, or NaN for not scored"
        )
    absent = rows < 0
    if step.file.settings.get("empty_rows") == "left-out":  # a prompt without tokens was left out before
        absent |= ~np.where(absent, False, step.trained[rows]).any(axis=1, keepdims=True)
    table = np.where(absent, np.nan, rewards[rows]).astype(rewards.dtype)
    trained = ~absent & step.trained[rows]
    return _Groups(table, np.where(absent, 0.0, values[rows].astype(np.float64)), rows, trained, step.lengths[rows])


def _compare(groups: _Groups, convention: Convention) -> tuple[Compared, Array, Array]:
    """Return the worst error, a mask of the elements that are off, and the expected values."""
    want = _wanted(groups, convention)
    limit = _limits(groups, convention, want)
    compared, present = Compared("advantage"), groups.trained
    order = np.argsort(groups.rows[present])
    compared.add(groups.got[present][order], want[present][order], limit[present][order])
    with np.errstate(all="ignore"):
        off = present & ~((groups.got == want) | (np.abs(groups.got - want) <= limit) | np.isinf(limit))
    return compared, off, want


def _wanted(groups: _Groups, convention: Convention) -> Array:
    """Return the advantages of a convention, (P, G)."""
    call, _ = _call(groups, convention)
    want = oracle.group_advantages(**call)
    if convention.get("statistics") == "tokens":
        want = tokenwise.of_first(want, groups.trained, groups.tokens)
    return want.reshape(groups.got.shape)


def _limits(groups: _Groups, convention: Convention, want: Array) -> Array:
    """Return the limits of these advantages, (P, G)."""
    call, slack = _call(groups, convention)
    with np.errstate(all="ignore"):
        limit = program.group_advantages(**call)["advantages"]
    if convention.get("statistics") == "tokens":
        limit = tokenwise.of_first(limit, groups.trained, groups.tokens) + slack * np.abs(want).max(initial=0.0)
    return np.where(_by_rule(groups, convention), 0.0, limit.reshape(groups.got.shape))


def _call(groups: _Groups, convention: Convention) -> tuple[dict[str, Any], float]:
    """Return the keywords of `group_advantages`, and the relative rounding of its rewards."""
    keywords = {name: convention[name] for name in ADVANTAGES}
    if convention.get("statistics") != "tokens":
        return {"rewards": groups.rewards.reshape(-1), "group_size": groups.rewards.shape[1], **keywords}, 0.0
    rewards, slack = tokenwise.centred(groups.rewards, keywords["baseline"])
    counts = np.where(groups.trained, groups.tokens, 0).reshape(-1)
    repeated = np.repeat(rewards.reshape(-1), counts)
    return {"rewards": repeated, "group_size": int(counts.sum()), **keywords, "baseline": "batch"}, slack


def _near(groups: _Groups, want: Array) -> bool:
    """Whether advantages are near enough to the recorded ones to make their limits worth computing."""
    scored = np.where(np.isnan(groups.rewards), np.nan, groups.rewards.astype(np.float64))
    spread = np.nanmax(scored, axis=1, keepdims=True) - np.nanmin(scored, axis=1, keepdims=True)
    varied = groups.trained & ~np.isnan(scored) & (spread > VARIED * np.nanmax(np.abs(scored)))
    off = np.where(varied, np.abs(groups.got - want), 0.0)
    return not off.max(initial=0.0) > ROUGH * np.abs(want).max(initial=0.0)


def _equal(groups: _Groups) -> Array:
    """Return a mask of the rows whose prompt has only equal scored rewards."""
    with np.errstate(all="ignore"):
        largest = np.nanmax(np.where(np.isnan(groups.rewards), -np.inf, groups.rewards), axis=1, keepdims=True)
        smallest = np.nanmin(np.where(np.isnan(groups.rewards), np.inf, groups.rewards), axis=1, keepdims=True)
    return np.broadcast_to(largest <= smallest, groups.rewards.shape)


def _by_rule(groups: _Groups, convention: Convention) -> Array:
    """Return which advantages are 0 by rule: of equal rewards, unless the baseline is not their group's."""
    equal = _equal(groups)
    by_group = convention["baseline"] in oracle.OF_GROUP and convention.get("statistics") != "tokens"
    return equal if by_group else np.zeros_like(equal)


def _against_settings(step: Step, groups: _Groups, convention: Convention) -> Finding:
    try:
        compared, off, _ = _compare(groups, convention)
    except ValueError as error:
        raise ConfigurationError(f"{step.file.path}: {error}") from None
    if not off.any():
        alike = [name for _, name, _ in _fitting(groups, skip=convention)]
        strength = "" if not alike else f"this step cannot tell it from {_listed(alike)}"
        return Finding(QUANTITY, "correct", compared.summary, strength=strength, numbers=compared.numbers)
    if remainder := _remainder(step, groups, convention):
        return Finding(QUANTITY, "cannot tell", f"{remainder}; {compared.summary}", numbers=compared.numbers)
    rare = _by_rule(groups, convention) | np.isnan(groups.rewards)
    if not (off & ~rare).any():
        return Finding(QUANTITY, "fragile", f"{_rare(groups, off)}: {compared.location}", numbers=compared.numbers)
    fitting = list(_fitting(groups, skip=convention))
    computes = _computes([name for _, name, _ in fitting], f" (asked: {words_of(convention)})")
    meant = choices.written(_changes(fitting[0][0], convention)) if len(fitting) == 1 else ""
    status: Status = "differs" if fitting else "wrong"
    return Finding(QUANTITY, status, compared.summary, computes, numbers=compared.numbers, declare=meant)


def _changes(convention: Convention, asked: Convention) -> dict[str, Any]:
    """Return the settings to write, and as None those to leave out, for another convention than the one asked."""
    names = (*ADVANTAGES, "statistics")
    return {name: convention.get(name) for name in names if convention.get(name) != asked.get(name)}


def _remainder(step: Step, groups: _Groups, convention: Convention) -> str:
    """Return which undeclared setting would explain advantages that do not hold, or ""."""
    settings = step.file.settings
    if not step.trained.all() and "empty_rows" not in settings:
        kept = groups.trained.any(axis=1)
        if not kept.all() and not _compare(groups.of(kept), convention)[1].any():
            return f"they fit without the prompts that have no tokens ({int((~kept).sum())}): write `empty_rows` 'left-out'"
    tokenwise_may_fit = convention["scale"] == "batch" and convention["baseline"] in {"batch", "mean"}
    if tokenwise_may_fit and "statistics" not in settings and 0 < step.tokens <= tokenwise.MOST:
        for baseline in ("batch", "mean"):
            other = {**convention, "baseline": baseline, "statistics": "tokens"}
            if not _compare(groups, other)[1].any():
                return f"they fit with mean and deviation over tokens: write `statistics` 'tokens', `baseline` '{baseline}'"
    return ""


def _identified(groups: _Groups) -> Finding:
    fitting = list(_fitting(groups))
    if not fitting:
        reason = "none of the known conventions fits; write `scale`, `ddof`, `eps`, `eps_mode` and `baseline`"
        return Finding(QUANTITY, "cannot tell", reason, "nothing that is known")
    convention, _, rare = fitting[0]
    compared, off, _ = _compare(groups, convention)
    names = [name for _, name, _ in fitting]
    status: Any = "cannot tell" if len(names) > 1 else "fragile" if rare else "correct"
    reason = f"{_rare(groups, off)}: {compared.location}" if status == "fragile" else compared.summary
    if len(names) > 1:
        reason = "no settings are written, and several conventions fit this step"
    return Finding(QUANTITY, status, reason, _computes(names, ""), numbers=compared.numbers)


def _rare(groups: _Groups, off: Array) -> str:
    equal = _equal(groups)
    if (off & equal).any():
        largest = float(np.abs(np.where(off & equal, groups.got, 0.0)).max())
        return f"equal rewards give up to {largest:.3g}, must be 0"
    return "a row that was not scored (NaN) has an advantage, must be 0"


def _fitting(groups: _Groups, skip: Convention | None = None) -> Iterator[tuple[Convention, str, bool]]:
    """Yield each convention that fits where rewards vary, its description, and whether it fails on rare rewards.

    Of conventions that differ only in ε and give identical results, only the first is yielded.
    """
    rare = _equal(groups) | np.isnan(groups.rewards)
    yielded: list[tuple[Any, Array]] = []
    if skip is not None:
        yielded.append((_without_epsilon(skip), _compare(groups, skip)[2]))
    for convention in conventions():
        if convention == skip or (convention.get("statistics") and not groups.tokens.any()):
            continue
        try:
            if not _near(groups, _wanted(groups, convention)):
                continue
            _, off, want = _compare(groups, convention)
        except ValueError:  # such as leave-one-out with one row a prompt
            continue
        key = _without_epsilon(convention)
        if (off & ~rare).any() or any(
            key == other_key and np.array_equal(want, other_want) for other_key, other_want in yielded
        ):
            continue
        yielded.append((key, want))
        yield convention, words_of(convention), bool(off.any())


def _without_epsilon(convention: Convention) -> Any:
    return convention["scale"], convention["ddof"], convention["baseline"], convention.get("statistics")


def conventions() -> Iterator[Convention]:
    """Yield the conventions of libraries, then all other combinations."""
    for key in LIBRARIES:
        yield dict(zip(ADVANTAGES, key, strict=True))
    for scale, baseline, *rest in product(("group", "batch"), oracle.OF_GROUP, (1, 0), EPSILONS, oracle.EPS_MODES):
        key = (scale, *rest, baseline)
        if key not in LIBRARIES:
            yield dict(zip(ADVANTAGES, key, strict=True))
    for baseline, *rest in product(("batch", "mean"), (1, 0), (1e-8, 1e-4, 1e-6), ("add", "inside")):
        whitened = dict(zip(ADVANTAGES, ("batch", *rest, baseline), strict=True))
        if baseline == "batch":
            yield whitened
        yield {**whitened, "statistics": "tokens"}


def words_of(convention: Convention) -> str:
    """Return a convention in words, with a library that has it."""
    scale, ddof, eps, mode, baseline = (convention[name] for name in ADVANTAGES)
    library = LIBRARIES.get((scale, ddof, eps, mode, baseline))
    suffix = f" ({library})" if library else ""
    if scale == "none":
        return f"{CENTRES[baseline]}, not divided{suffix}"
    centre = ", leave-one-out" if baseline == "leave-one-out" else ""
    of_batch = {"batch": "batch z-score", "none": "reward over the deviation of the batch"}
    whose = "group z-score" if scale == "group" else of_batch.get(baseline, "group mean taken off, batch deviation")
    if convention.get("statistics") == "tokens":
        whose = f"{'reward' if baseline == 'batch' else 'reward less the mean of its group,'} whitened over the batch's tokens"
    return f"{whose}{centre} with ddof {ddof}, ε {eps:g} {mode}{suffix}"


def _computes(names: list[str], asked: str) -> str:
    if not names:
        return "nothing that is known"
    return f"{names[0]}{asked}" if len(names) == 1 else f"cannot tell {_listed(names)}"


def _listed(names: list[str]) -> str:
    shown = " or ".join(f"“{name}”" for name in names[:2])
    return shown if len(names) <= 2 else f"{shown} or {len(names) - 2} more"
