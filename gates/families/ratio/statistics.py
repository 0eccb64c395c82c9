"""The forward formulas of the statistics of importance ratios, composed of choices.

Source: docs/definitions.md, "Ratio statistics".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gates.arithmetic.functions import Value, absolute, exp, expm1, log, maximum, minimum, plain, sqrt, where
from gates.arithmetic.number import Floats, Number, constant, widest
from gates.families.limits import evaluated
from gates.families.program import Choices, Data, Inputs, Program
from gates.families.ratio import edits
from gates.families.ratio import inputs as generators
from gates.families.ratio.program import SLACK, SUMS, Pair
from gates.families.rows import Grid, tokens, total
from gates.model import Array

NAMES = ("mean", "max_abs", "p99_abs", "k3", "chi2", "ess_per_n", "mult_err", "outside_low", "outside_high")
CLIPPED = ("clipped_low", "clipped_high")
ENDS = ("min_sequence_ratio", "max_sequence_ratio")
FORMS: Mapping[str, tuple[str, ...]] = {  # the usual forms of each statistic
    "k3": ("by expm1", "d first", "given"),
    "chi2": ("by expm1", "given", "of squares"),
    "ess": ("given", "shifted", "normalised"),
    "mult": ("given", "by maximum"),
    "p99": ("given", "weighted"),
}
MOST = 1e-2  # largest limit of a usable form, relative to its value; beyond, its digits cancel


def asked(inputs: Inputs) -> Choices:
    """Return the choices that a call of `ratio_statistics` asks for."""
    return {
        "mask": "given",
        "log_ratio": "given",
        "sums": "difference of sums",
        **dict.fromkeys(edits.STATISTICS, "given"),
        "scope": "both",
        "ends": "of rows",
        "signs": inputs.get("advantages") is not None,
        "padded": not bool(np.all(Grid.of(inputs, "policy").counts)),
        "empty": not bool(Grid.of(inputs, "policy").counts.any(axis=1).all()),
    }


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:  # noqa: ARG001  no gradient is asked
    """Return each statistic by name."""
    pair = Pair(data, chosen, ("policy", "behaviour"))
    counts, moved = pair.counts, pair.moved()
    some = counts.any(axis=1)
    gains = None if data.get("advantages") is None else np.asarray(data["advantages"], np.float64)
    by_token = None if gains is None else np.broadcast_to(gains[:, None], counts.shape)[counts]
    of_tokens, of_sequences = (_scoped(chosen, scope) for scope in ("tokens", "rows"))
    statistics = _moments(pair, of_tokens, moved[counts], by_token, counts.size)
    of_rows = ROWS[chosen["sequences"]](pair)
    if chosen["sequences"] != "empty rows":
        of_rows, gains = of_rows[some], None if gains is None else gains[some]
    sequences = _moments(pair, of_sequences, of_rows, gains, int(of_rows.shape[0]))
    statistics |= {f"seq_sum_{name}": value for name, value in sequences.items()}
    d = moved[counts] if chosen["ends"] == "of tokens" else of_rows
    least, largest = (_extreme(d if chosen["ends"] == "logarithms" else exp(d), pick) for pick in (minimum, maximum))
    if chosen["ends"] == "exchanged":
        least, largest = largest, least
    if chosen["ends"] == "magnitude":
        largest = exp(_extreme(absolute(d), maximum))
        least = 1.0 / largest
    return statistics | {ENDS[0]: least, ENDS[1]: largest}


def _scoped(chosen: Choices, scope: str) -> Choices:
    """Return the choices of the statistics of tokens or of rows."""
    given = dict.fromkeys(set(edits.STATISTICS) - {"sequences"}, "given")
    return chosen if chosen["scope"] in {"both", scope} else {**chosen, **given}


ROWS: Mapping[str, Callable[[Pair], Value]] = {  # log-ratios of rows, (B,)
    "given": lambda pair: pair.summed()[:, 0],
    "empty rows": lambda pair: pair.summed()[:, 0],
    "means": lambda pair: (pair.summed() / tokens(pair.counts))[:, 0],
    "mean ratios": lambda pair: log(maximum(total(exp(pair.moved()), pair.counts) / tokens(pair.counts), 1e-30))[:, 0],
}


def _moments(pair: Pair, chosen: Choices, d: Value, gains: Array | None, slots: int) -> dict[str, Value]:
    """Return the statistics of (n,) log-ratios; `slots` is their number without a mask."""
    r, size = exp(d), absolute(d)
    return {
        "mean": MEANS[chosen["mean"]](d, r),
        "max_abs": LARGEST[chosen["size"]](d, r),
        "p99_abs": _quantile(QUANTILES_OF.get(chosen["p99"], absolute)(d), chosen["p99"], pair.dtype),
        "k3": K3[chosen["k3"]](d, r),
        "chi2": CHI2[chosen["chi2"]](d, r),
        "ess_per_n": ESS[chosen["ess"]](d, r, float(d.shape[0])),
        "mult_err": MULT[chosen["mult"]](size, r),
        **_shares(pair, chosen["outside"], d, gains, float(slots)),
    }


MEANS: Mapping[str, Callable[[Value, Value], Value]] = {
    "given": lambda d, r: r.mean(),  # noqa: ARG005
    "geometric": lambda d, r: exp(d.mean()),  # noqa: ARG005
    "summed": lambda d, r: r.sum(),  # noqa: ARG005
    "log": lambda d, r: d.mean(),  # noqa: ARG005
    "less 1": lambda d, r: (r - 1.0).mean(),  # noqa: ARG005
    "median": lambda d, r: _middle(r),  # noqa: ARG005
    "inverse": lambda d, r: exp(-d).mean(),  # noqa: ARG005
    "squares": lambda d, r: (r * r).mean(),  # noqa: ARG005
    "bounded": lambda d, r: minimum(r, 1.0).mean(),  # noqa: ARG005
}
LARGEST: Mapping[str, Callable[[Value, Value], Value]] = {
    "given": lambda d, r: _extreme(absolute(d), maximum),  # noqa: ARG005
    "signed": lambda d, r: _extreme(d, maximum),  # noqa: ARG005
    "of the ratio": lambda d, r: _extreme(absolute(r - 1.0), maximum),  # noqa: ARG005
    "mean": lambda d, r: absolute(d).mean(),  # noqa: ARG005
    "exp": lambda d, r: exp(_extreme(absolute(d), maximum)),  # noqa: ARG005
    "least": lambda d, r: absolute(_extreme(d, minimum)),  # noqa: ARG005
    "range": lambda d, r: _extreme(d, maximum) - _extreme(d, minimum),  # noqa: ARG005
    "root mean square": lambda d, r: sqrt((d * d).mean()),  # noqa: ARG005
}
K3: Mapping[str, Callable[[Value, Value], Value]] = {
    "given": lambda d, r: (r - 1.0 - d).mean(),
    "d first": lambda d, r: (r - d - 1.0).mean(),
    "by expm1": lambda d, r: (expm1(d) - d).mean(),  # noqa: ARG005
    "of −D": lambda d, r: (exp(-d) - 1.0 + d).mean(),  # noqa: ARG005
    "k1": lambda d, r: (-d).mean(),  # noqa: ARG005
    "k2": lambda d, r: (d * d * 0.5).mean(),  # noqa: ARG005
    "plain": lambda d, r: d.mean(),  # noqa: ARG005
    "without −1": lambda d, r: (r - d).mean(),
    "with +D": lambda d, r: (r - 1.0 + d).mean(),
    "without D": lambda d, r: (r - 1.0).mean(),  # noqa: ARG005
    "halved": lambda d, r: (r - 1.0 - d).mean() * 0.5,
    "summed": lambda d, r: (r - 1.0 - d).sum(),
    "weighed": lambda d, r: (r * (r - 1.0 - d)).mean(),
    "absolute": lambda d, r: absolute(d).mean(),  # noqa: ARG005
    "square": lambda d, r: (d * d).mean(),  # noqa: ARG005
}
CHI2: Mapping[str, Callable[[Value, Value], Value]] = {
    "given": lambda d, r: (exp(d * 2.0) - 1.0).mean(),  # noqa: ARG005
    "by expm1": lambda d, r: expm1(d * 2.0).mean(),  # noqa: ARG005
    "of squares": lambda d, r: (r * r).mean() - 1.0,  # noqa: ARG005
    "square": lambda d, r: (r * r).mean(),  # noqa: ARG005
    "of r": lambda d, r: ((r - 1.0) * (r - 1.0)).mean(),  # noqa: ARG005
    "once": lambda d, r: (r - 1.0).mean(),  # noqa: ARG005
    "of −D": lambda d, r: (exp(d * -2.0) - 1.0).mean(),  # noqa: ARG005
    "less the mean": lambda d, r: (r * r).mean() - r.mean() * r.mean(),  # noqa: ARG005
    "summed": lambda d, r: (r * r - 1.0).sum(),  # noqa: ARG005
    "doubled": lambda d, r: (r - 1.0).mean() * 2.0,  # noqa: ARG005
    "halved": lambda d, r: expm1(d * 2.0).mean() * 0.5,  # noqa: ARG005
    "of D²": lambda d, r: (d * d).mean(),  # noqa: ARG005
}
ESS: Mapping[str, Callable[[Value, Value, float], Value]] = {
    "given": lambda d, r, n: _effective(r, n),  # noqa: ARG005
    "shifted": lambda d, r, n: _effective(exp(d - _extreme(d, maximum)), n),  # noqa: ARG005
    "normalised": lambda d, r, n: _effective(r / r.sum(), n),  # noqa: ARG005
    "count": lambda d, r, n: _effective(r, 1.0),  # noqa: ARG005
    "inverse": lambda d, r, n: 1.0 / _effective(r, n),  # noqa: ARG005
    "self-normalised mean": lambda d, r, n: 1.0 / (r * r).mean(),  # noqa: ARG005
    "at most 1": lambda d, r, n: r.mean() * r.mean() / ((r * r).mean() * n),  # noqa: ARG005
    "of D": lambda d, r, n: _effective(d, n),  # noqa: ARG005
    "root": lambda d, r, n: sqrt(_effective(r, n)),  # noqa: ARG005
    "not squared": lambda d, r, n: r.sum() / (n * (r * r).sum()),  # noqa: ARG005
    "share": lambda d, r, n: 1.0 - _effective(r, n),  # noqa: ARG005
    "entropy": lambda d, r, n: exp(-(r / r.sum() * log(r / r.sum())).sum()) / n,  # noqa: ARG005
    "largest": lambda d, r, n: r.sum() / (_extreme(r, maximum) * n),  # noqa: ARG005
}
MULT: Mapping[str, Callable[[Value, Value], Value]] = {
    "given": lambda size, r: exp(size).mean(),  # noqa: ARG005
    "by maximum": lambda size, r: maximum(r, 1.0 / r).mean(),  # noqa: ARG005
    "of the mean": lambda size, r: exp(size.mean()),  # noqa: ARG005
    "ratio": lambda size, r: r.mean(),  # noqa: ARG005
    "less 1": lambda size, r: expm1(size).mean(),  # noqa: ARG005
    "mean size": lambda size, r: size.mean(),  # noqa: ARG005
    "of r − 1": lambda size, r: absolute(r - 1.0).mean() + 1.0,  # noqa: ARG005
    "inverse": lambda size, r: exp(-size).mean(),  # noqa: ARG005
    "largest": lambda size, r: exp(_extreme(size, maximum)),  # noqa: ARG005
}


QUANTILES_OF: Mapping[str, Callable[[Value], Value]] = {  # functions of D
    "signed": lambda d: d,
    "of the ratio": lambda d: absolute(exp(d) - 1.0),
}


def _middle(values: Value) -> Value:
    """Return the median of (n,) numbers."""
    order = np.argsort(plain(values))
    low, high = (order[(len(order) - 1) // 2], order[len(order) // 2])
    return (values[low] + values[high]) * 0.5


def _effective(ratios: Value, n: float) -> Value:
    """Return Kong's (Σr)² / (n Σr²)."""
    total_ = ratios.sum()
    return total_ * total_ / (n * (ratios * ratios).sum())


def _quantile(size: Value, how: str, dtype: str) -> Value:
    """Return a quantile of |D| at rank q (n − 1), with the largest error of any value."""
    order = np.argsort(plain(size))
    q = {"95%": 0.95, "1%": 0.01, "90%": 0.9, "50%": 0.5}.get(how, 0.99)
    rounded = constant(q, dtype).plus_relative(1.0) if isinstance(size, Number) else q
    rank = rounded * float(len(order) - 1)
    below = int(np.floor(plain(rank) + 1e-9))
    left, right = (_certain(size, order[end]) for end in (below, min(below + 1, len(order) - 1)))
    share = rank - float(below)
    if how in {"lower", "higher"}:
        return left if how == "lower" or plain(share) < 1e-9 else right
    return left * (1.0 - share) + right * share if how == "weighted" else left + (right - left) * share


def _certain(values: Value, index: int) -> Value:
    """Return an element with the largest error of all, because rounding may change the order of the values."""
    if not isinstance(values, Number):
        return values[index]
    return Number(values.value[index], values.dtype, values.error.max(), values.void.any())


def _extreme(values: Value, pick: Callable[[Value, Value], Value]) -> Value:
    """Return the largest or smallest of (n,) numbers."""
    while values.shape[0] > 1:
        half = values.shape[0] // 2
        paired = pick(values[:half], values[half : 2 * half])
        values = _joined(paired, values[2 * half :])
    return values[0]


def _joined(first: Value, second: Value) -> Value:
    if not isinstance(first, Number):
        return np.concatenate([first, second])
    parts = ((getattr(first, name), getattr(second, name)) for name in ("value", "error", "void"))
    value, error, void = (np.concatenate(pair) for pair in parts)
    return Number(value, first.dtype, error, void)


def _shares(pair: Pair, how: str, d: Value, gains: Array | None, slots: float) -> dict[str, Value]:
    """Return the shares outside the clip range, and the shares that a clip stops."""
    r = exp(d)
    low, high = (pair.scalar(float(pair.data[name])) for name in ("epsilon_low", "epsilon_high"))
    if how == "widths":
        low, high = high, low
    low, high = {"low twice": (low, low), "high twice": (high, high)}.get(how, (low, high))
    r = exp(-d) if how == "inverse" else r
    below, above = (d < -low, d > high) if how == "log" else (r < 1.0 - low, r > 1.0 + high)
    if how == "inside":
        below, above = r >= 1.0 - low, r <= 1.0 + high
    zeros = pair.data.lift(np.zeros(d.shape, pair.dtype))
    n = {"of all slots": slots, "counts": 1.0, "percent": 0.01 * d.shape[0]}.get(how, float(d.shape[0]))

    def share(test: object, kept: Array | None = None) -> Value:
        ones = where(test, 1.0, zeros)
        return (ones if kept is None else where(kept, ones, zeros)).sum() / n

    names = {"outside_low": share(below), "outside_high": share(above)}
    if gains is not None:
        stopped = {"clipped_low": share(below, gains < 0.0), "clipped_high": share(above, gains > 0.0)}
        if how == "clipped":
            names = {"outside_low": stopped["clipped_low"], "outside_high": stopped["clipped_high"]}
        names |= stopped
    if how == "both":
        whole = share(below) + share(above)
        names |= {"outside_low": whole, "outside_high": whole}
    if how == "exchanged":
        names |= {"outside_low": names["outside_high"], "outside_high": names["outside_low"]}
    return names


PROGRAM = Program(
    op="ratio_statistics",
    asked=asked,
    compute=compute,
    edits=edits.of_statistics,
    inputs=generators.designed_statistics,
    outputs=(*(f"{level}{name}" for level in ("", "seq_sum_") for name in (*NAMES, *CLIPPED)), *ENDS),
    optional=frozenset(f"{level}{name}" for level in ("", "seq_sum_") for name in CLIPPED),
)
PROGRAMS = (PROGRAM,)


def ratio_statistics(**inputs: Any) -> dict[str, Floats]:
    """Return the textbook limit of every statistic by name; inf where a ratio may overflow."""
    by_name: dict[str, list[Number]] = defaultdict(list)
    for sums in SUMS:
        of_index = [{name: forms[min(i, len(forms) - 1)] for name, forms in FORMS.items()} for i in range(3)]
        forms = evaluated(PROGRAM, inputs, [{**form, "sums": sums} for form in of_index], slack=SLACK)
        for name in forms[0]:
            each = [form[name] for form in forms]
            by_name[name] += _usable(each) if name.endswith(("k3", "chi2")) else each
    return {name: widest(each) for name, each in by_name.items()}


def _usable(forms: list[Number]) -> list[Number]:
    """Return the forms whose limit is below 1% of the value, or all if there are none."""
    return [form for form in forms if form.limit() <= MOST * np.abs(form.value)] or forms
