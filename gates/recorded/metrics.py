"""Compare the logged metrics of a recorded step with their definitions, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gates.diagnosis.search import APART
from gates.families.kl import program as kl_limits
from gates.families.loss.program import row_of
from gates.families.ratio import program as ratio_limits
from gates.model import Array
from gates.nearest import hint
from gates.recorded.fields import METRIC, METRICS
from gates.recorded.finding import Compared, Finding, Status, Total, bounded
from gates.recorded.loss import dtype_of
from gates.recorded.step import Piece, Step
from gates_reference.oracle import kl, ratio

ARRAYS = ("policy", "old", "reference", "advantages", "entropy")
SHARES = {  # shares of tokens beyond a bound: (side, sign of A at which the clip acts; 0: any)
    "outside_low": ((-1, 0),),
    "outside_high": ((1, 0),),
    "clipped_low": ((-1, -1),),
    "clipped_high": ((1, 1),),
    "clip_ratio": ((-1, -1), (1, 1)),
}
EXTREMES = {"ratio_min": np.min, "ratio_max": np.max}
Terms = tuple[Array, Array]  # values and limits of the tokens


@dataclass(frozen=True, slots=True)
class Form:
    """One way to compute a metric from terms of the tokens."""

    name: str
    terms: Callable[[Mapping[str, Any]], Terms]
    mean: str = "tokens"  # or "rows", "width"
    known: bool = True  # whether a library computes it so on purpose


def judge(step: Step) -> list[Finding]:
    """Return the verdict on each logged metric."""
    findings, summed = {}, {}
    for name in step.file.metrics:
        if reason := _missing(step, name):
            findings[name] = Finding(METRIC + name, "unsupported", reason)
        elif forms := _forms(step, name):
            summed[name] = [_Sum(form, dtype_of(step)) for form in forms]
    if summed:
        for piece in step.pieces():
            values = _values(step, piece)
            for running in (running for sums in summed.values() for running in sums):
                running.add(values)
    for name, sums in summed.items():
        findings[name] = _verdict(step, name, sums)
    for name in step.file.metrics:
        if name not in findings:
            findings[name] = _of_rows(step, name)
    return [findings[name] for name in step.file.metrics]


NEEDS: Mapping[str, tuple[str, ...]] = {  # tensors of a metric; others are derived in `_missing`
    "kl": ("policy", "reference"),
    "entropy": ("entropy",),
    "reward_mean": ("rewards",),
    "tokens": (),
}


def _missing(step: Step, name: str) -> str:
    """Return why a metric cannot be judged, or ""."""
    if name not in METRICS:
        return f"no definition of `{name}`{hint(name, METRICS)}; docs/recorded-steps.md lists them"
    settings, on_policy = step.file.settings, step.file.settings.get("ratio") == "on-policy"
    signed = any(sign for _, sign in SHARES.get(name, ()))
    needed = NEEDS.get(name, ("policy", *(() if on_policy else ("old",)), *(("advantages",) if signed else ())))
    if absent := [tensor for tensor in needed if tensor not in step.file]:
        return f"the file has no tensor `{absent[0]}`"
    if name in SHARES and (
        absent := [setting for setting in ("epsilon_low", "epsilon_high") if setting not in settings]
    ):
        return f"the file has no setting `{absent[0]}`"
    if name in SHARES and _algorithm(step).bound not in {"clip", "none"}:
        return f"shares of `{settings['algorithm']}` have no definition here"
    return ""


def _algorithm(step: Step) -> Any:
    return row_of({"algorithm": "grpo", **step.file.settings})


@dataclass(slots=True)
class _Sum:
    """The running sum of one form of a metric."""

    form: Form
    dtype: str
    total: Total = field(init=False)
    count: float = 0.0
    rows: int = 0
    width: int = 0
    extreme: list[float] = field(default_factory=list)
    slack: float = 0.0

    def __post_init__(self) -> None:
        self.total = Total(self.dtype)

    def add(self, values: Mapping[str, Any]) -> None:
        """Add the tokens of a piece."""
        terms, limits = self.form.terms(values)
        mask = values["mask"]
        counts = mask.sum(axis=1)
        self.count += float(counts.sum())
        self.rows += len(mask)
        wide = bounded(np.where(mask, terms, 0.0), np.where(mask, limits, 0.0), self.dtype)
        if self.form.mean == "rows":
            wide = wide.sum(1) / np.maximum(counts, 1.0)
        piece_sum = wide.sum()
        self.total.add(float(piece_sum.value), float(piece_sum.limit()), int(counts.sum()))
        if mask.any():
            self.extreme += [float(terms[mask].min()), float(terms[mask].max())]
            self.slack = max(self.slack, float(np.where(mask & np.isfinite(limits), limits, 0.0).max()))

    def result(self, step: Step, name: str) -> tuple[float, float]:
        """Return the value, and how far a program in the dtype may lie from it."""
        if name in EXTREMES:
            return float(EXTREMES[name](self.extreme)), self.slack
        divisor = {"rows": self.rows, "width": self.rows * step.file.width}.get(self.form.mean, self.count)
        value = self.total.value / divisor
        return value, self.total.limit / divisor + 2.0 * float(np.finfo(self.dtype).eps) * abs(value)


def _verdict(step: Step, name: str, sums: list[_Sum]) -> Finding:
    """Return the verdict on a metric; undecided if another form lies as near, since long sums have wide limits."""
    got, tried = step.file.number(METRIC + name), []
    for running in sums:
        value, limit = running.result(step, name)
        compared = Compared(name)
        compared.add(np.asarray(got), np.asarray(value), np.asarray(limit))
        tried.append((running.form, compared, value))
    (form, first, defined), *others = tried
    fitting = [
        (variant, compared) for variant, compared, value in others if compared.holds and not _same(value, defined)
    ]
    numbers = {"got": got, "error_in_limits": first.worst, "at": first.location}
    if first.holds:
        near = [variant.name for variant, compared in fitting if compared.worst < APART * first.worst]
        status: Status = "cannot tell" if near else "correct"
        computes = _or([form.name, *near]) if near else ""
        return Finding(METRIC + name, status, first.summary, computes, numbers=numbers)
    if len(fitting) == 1:
        variant, _ = fitting[0]
        status = "correct" if variant.known else "wrong"
        return Finding(METRIC + name, status, first.summary, f"{variant.name} (defined: {form.name})", numbers=numbers)
    status = "cannot tell" if any(variant.known for variant, _ in fitting) else "wrong"
    computes = _or([variant.name for variant, _ in fitting]) if fitting else "nothing that is known"
    return Finding(METRIC + name, status, first.summary, computes, numbers=numbers)


def _same(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))  # such as two kinds of mean over rows of equal length


def _or(names: list[str]) -> str:
    return f"cannot tell {' or '.join(f'“{name}”' for name in names[:3])}"


def _values(step: Step, piece: Piece) -> dict[str, Any]:
    """Return the arrays of a piece, with the advantages repeated on each token."""
    values = {**step.arrays(ARRAYS, piece), "mask": piece.mask}
    if values["policy"] is not None and values["old"] is None:
        values["old"] = values["policy"]
    advantages = values["advantages"]
    if advantages is not None and advantages.ndim == 1:
        values["advantages"] = np.broadcast_to(advantages[:, None], piece.mask.shape)
    return values


def _forms(step: Step, name: str) -> list[Form]:
    """Return the forms of a metric of tokens: its definition, then known variants and mistakes."""
    if name == "kl":
        return list(_kl_forms(step.file.settings.get("kl_estimator", "k3")))
    if name == "entropy":
        return list(_means(Form("the mean of the entropies", lambda x: _exact(x["entropy"]))))
    if name == "ppo_kl":
        return list(
            _means(Form("the mean of old − policy", lambda x: _estimate(x["old"], x["policy"], "k1", x["mask"])))
        )
    if name in {"ratio_mean", *EXTREMES}:
        form = Form("the ratio that the algorithm uses", _ratio_of(_algorithm(step).value_level))
        return [form] if name in EXTREMES else list(_means(form))
    if name in SHARES:
        return list(_share_forms(step, name))
    return []


def _means(form: Form) -> Iterator[Form]:
    yield form
    yield Form(f"{form.name}, averaged by rows, then over rows", form.terms, "rows", form.known)
    yield Form(f"{form.name}, averaged over the padded width", form.terms, "width", known=False)


def _kl_forms(configured: str) -> Iterator[Form]:
    for estimator in (configured, *(name for name in ("k1", "k2", "k3") if name != configured)):
        yield from _means(Form(estimator, _kl_of("policy", "reference", estimator)))
    inverted = Form(
        f"{configured} inverted: of the reference to the policy", _kl_of("reference", "policy", configured), known=False
    )
    yield from _means(inverted)


def _kl_of(first: str, second: str, estimator: str) -> Callable[[Mapping[str, Any]], Terms]:
    return lambda x: _estimate(x[first], x[second], estimator, x["mask"])


def _estimate(policy: Array, reference: Array, estimator: str, mask: Array) -> Terms:
    lp, ref = (np.where(mask, x, 0.0).astype(x.dtype) for x in (policy, reference))
    keywords: Any = {"estimator": estimator, "mask": mask, "reduction": "none"}
    return kl.token_kl(lp, ref, **keywords), kl_limits.token_kl(policy=lp, reference=ref, **keywords)["kl"]


def _exact(values: Array) -> Terms:
    return np.asarray(values, np.float64), np.zeros(values.shape)


def _ratio_of(level: str) -> Callable[[Mapping[str, Any]], Terms]:
    def terms(x: Mapping[str, Any]) -> Terms:
        mask = x["mask"]
        lp, old = (np.where(mask, x[name], 0.0).astype(x[name].dtype) for name in ("policy", "old"))
        value = ratio.importance_ratio(lp, old, level=level, mask=mask)
        limit = ratio_limits.importance_ratio(policy=lp, old=old, level=level, mask=mask)["ratio"]
        if level != "token":
            value, limit = (np.broadcast_to(array[:, None], mask.shape) for array in (value, limit))
        return value, limit

    return terms


def _share_forms(step: Step, name: str) -> Iterator[Form]:
    settings, level = step.file.settings, _algorithm(step).value_level
    bounds = {-1: 1.0 - settings["epsilon_low"], 1: 1.0 + settings["epsilon_high"]}
    of = "rows'" if level != "token" else "tokens'"
    yield from _means(Form(f"the share by {of} ratios", _share(level, bounds, SHARES[name])))
    if any(sign for _, sign in SHARES[name]):
        anyway = tuple((side, 0) for side, _ in SHARES[name])
        yield from _means(Form("the share whatever the sign of A", _share(level, bounds, anyway)))
        inverted = tuple((side, -sign) for side, sign in SHARES[name])
        yield Form("the share with the signs of A exchanged", _share(level, bounds, inverted), known=False)


def _share(
    level: str, bounds: Mapping[int, float], sides: tuple[tuple[int, int], ...]
) -> Callable[[Mapping[str, Any]], Terms]:
    def terms(x: Mapping[str, Any]) -> Terms:
        value, limit = _ratio_of(level)(x)
        beyond, undecided = np.zeros(value.shape), np.zeros(value.shape)
        for side, sign in sides:
            bound = bounds[side]
            acts = np.ones(value.shape, bool) if sign == 0 else np.sign(x["advantages"]) == sign
            room = limit + float(np.finfo(x["policy"].dtype).eps) * bound
            beyond += acts & (side * (value - bound) > 0.0)
            undecided += acts & (np.abs(value - bound) <= room)
        return beyond, undecided

    return terms


def _of_rows(step: Step, name: str) -> Finding:
    """Return the verdict on a metric of rows or on the token count."""
    compared, got = Compared(name), np.asarray(step.file.number(METRIC + name))
    if name == "tokens":
        compared.add(got, np.asarray(float(step.tokens)), np.asarray(0.0))
    else:
        rewards = step.file.read("rewards")
        scored = rewards[~np.isnan(rewards)]
        mean = bounded(scored, np.zeros(scored.shape), scored.dtype.name).mean()
        compared.add(got, mean.value, mean.limit())
    numbers = {"error_in_limits": compared.worst, "at": compared.location}
    return Finding(METRIC + name, "correct" if compared.holds else "wrong", compared.summary, numbers=numbers)
