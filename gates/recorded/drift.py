"""Statistics of the difference between sampler and trainer log-probs; reported without a verdict."""

from __future__ import annotations

import math

import numpy as np

from gates.recorded.finding import Finding
from gates.recorded.step import Step
from gates_reference.oracle.statistics import measured

QUANTITY = "sampler drift"
EXACT, QUANTISED = 1e-3, 0.05  # nats: largest |D| between float32 code paths, and with 8-bit caches (0.028)
LEAST_ESS = 0.9  # effective rows / rows: below it a few rows dominate a corrected gradient


def judge(step: Step) -> Finding:
    """Return the statistics of D = trainer − sampler over the tokens that the sampler recorded."""
    trainer = "old" if "old" in step.file else "policy"
    missing = next((name for name in (trainer, "sampling") if name not in step.file), "")
    if missing:
        return Finding(QUANTITY, "unsupported", f"the file has no tensor `{missing}`")
    tokens, unrecorded, largest, k3, total, squares = 0, 0, 0.0, 0.0, 0.0, 0.0
    rows, row_sum, row_squares, extremes = 0, 0.0, 0.0, [math.inf, 0.0]
    for piece in step.pieces():
        own, sampled = step.slots(trainer, piece), step.slots("sampling", piece)
        known = piece.mask & ~np.isnan(sampled)
        unrecorded += int((piece.mask & ~known).sum())
        if not known.any():
            continue
        stats = measured(
            np.where(known, own, 0.0),
            np.where(known, sampled, 0.0),
            known,
            epsilon_low=0.0,
            epsilon_high=0.0,
            advantages=None,
        ).values
        n, b = int(known.sum()), int(known.any(axis=1).sum())
        tokens, rows = tokens + n, rows + b
        largest, k3 = max(largest, stats["max_abs"]), k3 + n * stats["k3"]
        total, squares = total + n * stats["mean"], squares + n * (stats["chi2"] + 1.0)
        row_sum, row_squares = (row_sum + b * stats["seq_sum_mean"], row_squares + b * (stats["seq_sum_chi2"] + 1.0))
        extremes = [min(extremes[0], stats["min_sequence_ratio"]), max(extremes[1], stats["max_sequence_ratio"])]
    if not tokens:
        return Finding(QUANTITY, "unsupported", "tensor `sampling` is NaN at every token: the sampler recorded nothing")
    numbers = {
        "tokens": tokens,
        "unrecorded": unrecorded,
        "max_abs": largest,
        "k3": k3 / tokens,
        "mean": total / tokens,
        "ess_per_n": total**2 / (tokens * squares),
        "seq_sum_ess_per_n": row_sum**2 / (rows * row_squares),
        "min_sequence_ratio": extremes[0],
        "max_sequence_ratio": extremes[1],
    }
    return Finding(QUANTITY, "finding", _words(numbers), numbers=numbers)


def _words(n: dict[str, float]) -> str:
    """Return the numbers and their usual causes."""
    statistics = (
        f"D = trainer − sampler: largest |D| {n['max_abs']:.3g} nats, k3 {n['k3']:.3g} a token, effective rows "
        f"{100 * n['seq_sum_ess_per_n']:.3g}%, ratios of rows {n['min_sequence_ratio']:.3g} to {n['max_sequence_ratio']:.3g}"
    )
    if n["max_abs"] <= EXACT:
        interpretation = f"within {EXACT:g}, as the same model in float32 on another path"
    elif n["max_abs"] <= QUANTISED:
        interpretation = f"within {QUANTISED:g}, as quantised caches or half precision"
    else:
        interpretation = (
            f"beyond {QUANTISED:g}: another distribution at some tokens (temperature, filters, old weights, other ids)"
        )
    if n["seq_sum_ess_per_n"] < LEAST_ESS:
        interpretation += (
            f"; below {100 * LEAST_ESS:g}% effective rows, few rows carry a gradient that is corrected by their ratios"
        )
    return f"{statistics}; {interpretation}"
