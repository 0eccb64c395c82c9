"""The policy losses in another form: row by row and token by token, in scalars of the data's dtype, added one by one.

A row's mean first, then the mean over rows; the KL beside the loss and not in its terms; k3 with expm1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}
Array = np.ndarray[Any, Any]
Scalar = Any
ROW_RATIOS = ("gspo", "gspo-token", "luspo", "rloo", "gmpo")


def _rows(x: dict[str, Any]) -> list[Array]:
    """Return the places of each row's tokens in the arrays as they came."""
    shape = x["policy"].shape
    if len(shape) == 1:
        ends = np.cumsum(x["lengths"])
        return [np.arange(end - n, end) for end, n in zip(ends, x["lengths"], strict=True)]
    mask = np.ones(shape, bool) if x["mask"] is None else x["mask"]
    if x["lengths"] is not None:
        mask = np.arange(shape[1]) < x["lengths"][:, None]
    if x.get("row_mask") is not None:
        mask = mask & x["row_mask"][:, None]
    return [row * shape[1] + np.flatnonzero(slots) for row, slots in enumerate(mask)]


def _total(values: list[Scalar], zero: Scalar) -> Scalar:
    for value in values:
        zero = zero + value
    return zero


def _clip(r: Scalar, a: Scalar, x: dict[str, Any]) -> tuple[Scalar, Scalar]:
    """Return the loss of a ratio, and r where its gradient is alive."""
    if a > 0:
        high = type(r)(1.0 + x["epsilon_high"])
        return (-high * a, type(r)(0)) if r > high else (-r * a, r)
    low, delta = type(r)(1.0 - x["epsilon_low"]), x["delta"]
    if r < low:
        return -low * a, type(r)(0)
    if delta is not None and r > delta:
        return -type(r)(delta) * a, type(r)(0)
    return -r * a, r


def _row(x: dict[str, Any], lp: Array, old: Array, a: Array, w: Array, zero: Scalar) -> tuple[list, list]:
    """Return Σ-ready losses and slopes of a row's tokens."""
    algorithm, n = x["algorithm"], len(lp)
    number = type(zero)
    d = [p - o for p, o in zip(lp, old, strict=True)]
    if algorithm == "gmpo":
        q = [
            min(v, number(x["epsilon_high"])) if b > 0 else max(v, number(-x["epsilon_low"]))
            for v, b in zip(d, a, strict=True)
        ]
        r = np.exp(_total(q, zero) / number(n))
        return [-r * b * c for b, c in zip(a, w, strict=True)], [
            -r * b * c if v == u else zero for v, u, b, c in zip(d, q, a, w, strict=True)
        ]
    if algorithm in ROW_RATIOS:
        total = _total(d, zero)
        r = np.exp(total if algorithm == "rloo" else total / number(n))
        free = algorithm == "rloo" and x["epsilon_low"] is None
        found = [(-r * b, r) if free else _clip(r, b, x) for b in a]
        times = number(n) if algorithm == "rloo" else number(1)
        return [v * c for (v, _), c in zip(found, w, strict=True)], [
            -s * b * c * times for (_, s), b, c in zip(found, a, w, strict=True)
        ]
    losses, slopes = [], []
    for p, v, b, c in zip(lp, d, a, w, strict=True):
        r = np.exp(v)
        if algorithm == "cispo":
            cap = number(x["epsilon_high"] + (1.0 if x["cispo_bound"] == "relative" else 0.0))
            slope = -min(r, cap) * b * c
            value = slope * p
        elif algorithm == "sapo":
            tau = number(x["sapo_temperature_positive"] if b > 0 else x["sapo_temperature_negative"])
            gate = number(1) / (number(1) + np.exp(-tau * (r - number(1))))
            value, slope = -gate * number(4) / tau * b * c, -number(4) * gate * (number(1) - gate) * r * b * c
        else:
            value, alive = _clip(r, b, x)
            value, slope = value * c, -alive * b * c
        losses.append(value)
        slopes.append(slope)
    return losses, slopes


def _kl(x: dict[str, Any], lp: Array, old: Array, ref: Array, zero: Scalar) -> tuple[list, list]:
    number, kind = type(zero), x["kl_estimator"]
    values, slopes = [], []
    mean_ratio = np.exp(_total([p - o for p, o in zip(lp, old, strict=True)], zero) / number(len(lp)))
    for p, o, q in zip(lp, old, ref, strict=True):
        d = q - p
        k = {"k1": -d, "k2": number(0.5) * d * d, "k3": np.expm1(d) - d}[kind]
        s = {"k1": number(1), "k2": -d, "k3": -np.expm1(d)}[kind]
        if x.get("kl_clamp") is not None and abs(k) > x["kl_clamp"]:
            k, s = number(np.copysign(x["kl_clamp"], k)), zero
        if x["kl_ratio"] == "token":
            r = np.exp(p - o)
            k, s = r * k, r * (k + s)
        values.append(k)
        slopes.append(s)
    if x["kl_ratio"] == "sequence":
        mean = _total(values, zero) / number(len(lp))
        values, slopes = [mean_ratio * k for k in values], [mean_ratio * (s + mean) for s in slopes]
    return values, slopes


def _blocks(x: dict[str, Any], lengths: list[int]) -> list[list[int]]:
    """Return the rows of each block that is averaged over its tokens."""
    rows = len(lengths)
    sizes = [rows]
    if x["algorithm"] == "bnpo-trl":
        sizes = x["micro_batches"]
    elif x["dapo_denominator"] == "group":
        sizes = [x["group_size"]] * (rows // x["group_size"])
    ends = np.cumsum(sizes)
    return [list(range(end - size, end)) for end, size in zip(ends, sizes, strict=True)]


def _mean(x: dict[str, Any], values: list[list[Scalar]], zero: Scalar) -> tuple[Scalar, list[Scalar]]:
    """Return the mean that the algorithm takes, and what a token of each row weighs in it."""
    number, rows = type(zero), len(values)
    lengths = [max(len(row), 1) for row in values]
    sums = [_total(row, zero) for row in values]
    algorithm = x["algorithm"]
    if algorithm == "dr_grpo":
        size = number(rows * x["max_length"])
        return _total(sums, zero) / size, [number(1) / size] * rows
    if algorithm == "luspo":
        return _total(sums, zero) / number(rows), [number(1) / number(rows)] * rows
    if algorithm in ("dapo", "cispo") and x["dapo_denominator"] == "trl":
        size = number(x["tokens_in_step"])
        return _total(sums, zero) / size, [number(1) / size] * rows
    if algorithm in ("dapo", "cispo", "bnpo-trl"):
        blocks, means, weights = _blocks(x, lengths), [], [zero] * rows
        for block in blocks:
            tokens = number(max(sum(len(values[row]) for row in block), 1))
            means.append(_total([sums[row] for row in block], zero) / tokens)
            for row in block:
                weights[row] = number(1) / tokens / number(len(blocks))
        return _total(means, zero) / number(len(blocks)), weights
    means = [one / number(n) for one, n in zip(sums, lengths, strict=True)]
    return _total(means, zero) / number(rows), [number(1) / number(n) / number(rows) for n in lengths]


def policy_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    policy = x["policy"]
    zero, places = policy.dtype.type(0), _rows(x)
    flat = {name: x[name].reshape(-1) for name in ("policy", "old", "reference") if x[name] is not None}
    losses, slopes, kls, pulls = [], [], [], []
    for row, at in enumerate(places):
        lp = flat["policy"][at]
        old = flat["old"][at] if "old" in flat else lp
        own = {}
        for name in ("advantages", "weights"):
            one = np.ones(len(places), policy.dtype) if x[name] is None else x[name]
            own[name] = one.reshape(-1)[at] if one.shape == policy.shape else np.full(len(at), one[row])
        found = _row(x, lp, old, own["advantages"], own["weights"], zero) if len(at) else ([], [])
        losses.append(found[0])
        slopes.append(found[1])
        if x["beta"]:
            found = _kl(x, lp, old, flat["reference"][at], zero) if len(at) else ([], [])
            kls.append(found[0])
            pulls.append(found[1])
    loss, weights = _mean(x, losses, zero)
    gradient, beta = np.zeros(policy.size, policy.dtype), policy.dtype.type(x["beta"])
    if x["beta"]:
        loss = loss + beta * _mean(x, kls, zero)[0]
    for row, at in enumerate(places):
        gradient[at] = [slope * weights[row] for slope in slopes[row]]
        if x["beta"]:
            gradient[at] += np.array([beta * pull * weights[row] for pull in pulls[row]], policy.dtype)
    return {"loss": loss, "gradient": gradient.reshape(policy.shape)}


OPS = {"policy_loss": policy_loss}
ALGORITHMS = ("grpo", "dapo", "bnpo-trl", "dr_grpo", "gspo", "gspo-token", "rloo", "cispo", "sapo", "gmpo", "luspo")
CONVENTIONS = {"policy_loss": {"algorithm": ALGORITHMS, "clipped": (False, True), "kl_clamp": (None, 10.0)}}
