"""The forward definition of the statistics of importance ratios, and what people write instead.

Source: docs/definitions.md, "Ratio statistics".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from gates.diagnosis.arithmetic import Value, absolute, exp, log, maximum, plain, where
from gates.diagnosis.program import Choices, Data, Edit, Inputs, Program
from gates.diagnosis.programs import row_inputs
from gates.diagnosis.programs.ratio import Pair
from gates.diagnosis.programs.rows import MASKS, Grid, tokens, total
from gates.model import Array

NAMES = ("mean", "max_abs", "p99_abs", "k3", "chi2", "ess_per_n", "mult_err", "outside_low", "outside_high")
CLIPPED = ("clipped_low", "clipped_high")
ENDS = ("min_sequence_ratio", "max_sequence_ratio")
KINDS: Mapping[str, Mapping[str, str]] = {  # of each statistic, what is computed instead
    "mean": {"geometric": "exp of the mean of D for the mean ratio"},
    "size": {"signed": "the largest D for the largest |D|", "of the ratio": "the largest |r − 1| for the largest |D|"},
    "p99": {
        "lower": "the 99% quantile without interpolation, the lower value",
        "higher": "the 99% quantile without interpolation, the higher value",
        "95%": "the 95% quantile for the 99% one",
    },
    "k3": {
        "of −D": "k3 of −D: e^−D + D − 1, which estimates the other KL",
        "k1": "mean −D (k1) for k3",
        "k2": "mean D²/2 (k2) for k3",
        "plain": "mean D for k3",
    },
    "chi2": {
        "square": "mean r² for χ², not less 1",
        "of r": "mean (r − 1)² for χ², a centred estimate",
        "once": "mean e^D − 1 for χ², not of 2D",
        "of −D": "χ² of −D: mean e^−2D − 1",
    },
    "ess": {
        "count": "the effective sample size, not over n",
        "inverse": "n over the effective sample size",
        "self-normalised mean": "1 over the mean of r²",
        "at most 1": "the mean ratio squared over n mean r²",
    },
    "mult": {
        "of the mean": "exp of the mean |D|, not the mean of exp|D|",
        "ratio": "the mean ratio for the mean of exp|D|",
    },
    "outside": {
        "clipped": "shares outside the clip range of those only that a clip stops",
        "exchanged": "shares below and above the clip range exchanged",
        "log": "shares of D outside −ε_low … ε_high, not of r outside the clip range",
        "of all slots": "shares outside the clip range over every slot, padding too",
    },
    "sequences": {
        "means": "rows by the mean of D, not its sum",
        "mean ratios": "rows by the mean of their ratios",
        "empty rows": "rows without a token counted, with ratio 1",
    },
}


def asked(inputs: Inputs) -> Choices:
    """Return the choices that the keywords of `ratio_statistics` ask for."""
    return {
        "mask": "given",
        "log_ratio": "given",
        **dict.fromkeys(KINDS, "given"),
        "signs": inputs.get("advantages") is not None,
        "padded": not bool(np.all(Grid.of(inputs, "policy").counts)),
        "empty": not bool(Grid.of(inputs, "policy").counts.any(axis=1).all()),
    }


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:  # noqa: ARG001  no gradient is asked
    """Return each statistic by its name."""
    pair = Pair(data, chosen, ("policy", "behaviour"))
    counts, moved = pair.counts, pair.moved()
    some = counts.any(axis=1)
    gains = None if data.get("advantages") is None else np.asarray(data["advantages"], np.float64)
    low, high = pair.scalar(float(data["epsilon_low"])), pair.scalar(float(data["epsilon_high"]))
    by_token = None if gains is None else np.broadcast_to(gains[:, None], counts.shape)[counts]
    found = _moments(moved[counts], (low, high), by_token, chosen, counts.size)
    of_rows = ROWS[chosen["sequences"]](pair)
    if chosen["sequences"] != "empty rows":
        of_rows, gains = of_rows[some], None if gains is None else gains[some]
    sequences = _moments(of_rows, (low, high), gains, chosen, int(of_rows.shape[0]))
    found |= {f"seq_sum_{name}": value for name, value in sequences.items()}
    ratios = exp(of_rows)
    order = np.argsort(plain(ratios))
    return found | {ENDS[0]: ratios[order[0]], ENDS[1]: ratios[order[-1]]}


ROWS: Mapping[str, Callable[[Pair], Value]] = {  # to log-ratios of rows, (B,)
    "given": lambda pair: pair.summed()[:, 0],
    "empty rows": lambda pair: pair.summed()[:, 0],
    "means": lambda pair: (pair.summed() / tokens(pair.counts))[:, 0],
    "mean ratios": lambda pair: log(maximum(total(exp(pair.moved()), pair.counts) / tokens(pair.counts), 1e-30))[:, 0],
}


def _moments(
    d: Value, bounds: tuple[Value, Value], gains: Array | None, chosen: Choices, slots: int
) -> dict[str, Value]:
    r, size, n = exp(d), absolute(d), float(d.shape[0])
    found = {
        "mean": exp(d.mean()) if chosen["mean"] == "geometric" else r.mean(),
        "max_abs": {"signed": d, "of the ratio": absolute(r - 1.0)}.get(chosen["size"], size),
        "p99_abs": _quantile(size, chosen["p99"]),
        "k3": K3[chosen["k3"]](d, r),
        "chi2": CHI2[chosen["chi2"]](d, r),
        "ess_per_n": ESS[chosen["ess"]](r, n),
        "mult_err": {"of the mean": exp(size.mean()), "ratio": r.mean()}.get(chosen["mult"], exp(size).mean()),
    }
    largest = found["max_abs"]
    found["max_abs"] = largest[int(np.argmax(plain(largest)))]
    return found | _shares(d, r, bounds, gains, chosen, float(slots))


K3: Mapping[str, Callable[[Value, Value], Value]] = {
    "given": lambda d, r: (r - 1.0 - d).mean(),
    "of −D": lambda d, r: (exp(-d) - 1.0 + d).mean(),  # noqa: ARG005
    "k1": lambda d, r: (-d).mean(),  # noqa: ARG005
    "k2": lambda d, r: (d * d * 0.5).mean(),  # noqa: ARG005
    "plain": lambda d, r: d.mean(),  # noqa: ARG005
}
CHI2: Mapping[str, Callable[[Value, Value], Value]] = {
    "given": lambda d, r: (exp(d * 2.0) - 1.0).mean(),  # noqa: ARG005
    "square": lambda d, r: (r * r).mean(),  # noqa: ARG005
    "of r": lambda d, r: ((r - 1.0) * (r - 1.0)).mean(),  # noqa: ARG005
    "once": lambda d, r: (r - 1.0).mean(),  # noqa: ARG005
    "of −D": lambda d, r: (exp(d * -2.0) - 1.0).mean(),  # noqa: ARG005
}
ESS: Mapping[str, Callable[[Value, float], Value]] = {
    "given": lambda r, n: r.sum() * r.sum() / ((r * r).sum() * n),
    "count": lambda r, n: r.sum() * r.sum() / (r * r).sum(),  # noqa: ARG005
    "inverse": lambda r, n: (r * r).sum() * n / (r.sum() * r.sum()),
    "self-normalised mean": lambda r, n: 1.0 / (r * r).mean(),  # noqa: ARG005
    "at most 1": lambda r, n: r.mean() * r.mean() / ((r * r).mean() * n),
}


def _quantile(size: Value, how: str) -> Value:
    """Return a quantile of |D| at position q (n − 1) of the sorted values."""
    order = np.argsort(plain(size))
    place = (0.95 if how == "95%" else 0.99) * (len(order) - 1)
    below = int(np.floor(place + 1e-9))
    above = min(below + 1, len(order) - 1)
    left, right = size[order[below]], size[order[above]]
    if how in {"lower", "higher"}:
        return left if how == "lower" or place - below < 1e-9 else right
    return left + (right - left) * (place - below)


def _shares(
    d: Value, r: Value, bounds: tuple[Value, Value], gains: Array | None, chosen: Choices, slots: float
) -> dict[str, Value]:
    how, (low, high) = chosen["outside"], bounds
    below, above = (d < -low, d > high) if how == "log" else (r < 1.0 - low, r > 1.0 + high)
    zeros = d * 0.0
    n = slots if how == "of all slots" else float(d.shape[0])

    def share(test: object, kept: Array | None = None) -> Value:
        one = where(test, zeros + 1.0, zeros)
        return (one if kept is None else where(kept, one, zeros)).sum() / n

    names = {"outside_low": share(below), "outside_high": share(above)}
    if gains is not None:
        stopped = {"clipped_low": share(below, gains < 0.0), "clipped_high": share(above, gains > 0.0)}
        if how == "clipped":
            names = {"outside_low": stopped["clipped_low"], "outside_high": stopped["clipped_high"]}
        names |= stopped
    if how == "exchanged":
        names |= {"outside_low": names["outside_high"], "outside_high": names["outside_low"]}
    return names


def edits(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of statistics with these choices."""
    yield Edit("statistics of the inverse ratio: D = behaviour − policy", {"log_ratio": "inverted"})
    if asked["padded"]:
        yield from (Edit(words, {"mask": name}) for name, words in MASKS.items() if name != "inverted")
    for name, kinds in KINDS.items():
        for kind, words in kinds.items():
            acts = {"clipped": asked["signs"], "empty rows": asked["empty"], "of all slots": asked["padded"]}
            if acts.get(kind, True):
                yield Edit(words, {name: kind})


def designed(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight batches with the settings of a call: ratios on both sides of the clip range, advantages of both signs."""
    for mask in row_inputs.masks(example, "policy", rng):
        policy = -np.asarray(rng.gamma(1.5, 0.8, mask.shape)) - 1e-3
        moved = rng.normal(0.05, 0.35, mask.shape)
        arrays = {"policy": policy, "behaviour": policy - moved}
        given = row_inputs.laid_out(example, "policy", arrays, mask)
        if example.get("advantages") is not None:
            drawn = np.resize([1.1, -0.6, 0.4, -1.3], len(mask)) * rng.uniform(0.5, 1.5, len(mask))
            given["advantages"] = drawn.astype(np.asarray(example["policy"]).dtype)
        yield given


PROGRAM = Program(
    op="ratio_statistics",
    asked=asked,
    compute=compute,
    edits=edits,
    inputs=designed,
    outputs=(*(f"{level}{name}" for level in ("", "seq_sum_") for name in (*NAMES, *CLIPPED)), *ENDS),
    optional=frozenset(f"{level}{name}" for level in ("", "seq_sum_") for name in CLIPPED),
)
PROGRAMS = (PROGRAM,)
