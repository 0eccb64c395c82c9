"""Least squares of a sketched gradient on the sketched columns: a coefficient for each token, with its standard error."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from gates.model import Array
from gates.xray.ranks import Update

ROUNDING = 2.0**-23  # the spacing of float32 near 1: no backward pass is more precise
COLUMN = 16  # roundings of the largest column that a column carries: log-probs come from logits of up to 16
KNOWN = 0.1  # relative error of a column above which its coefficient is no number
RARE = 1e-6  # chance of calling one update's equal coefficients unequal
LEAST = 1e-12  # of the largest column: a smaller one is left out, since it explains nothing
LEAK = 1e-6  # share of a column in a combination that has no gradient: determined columns have 1e-12, others 1/n
STEPS = 25  # of power iteration, for a condition to a few percent


@dataclass(frozen=True, slots=True)
class Fit:
    """The coefficients of an update.

    Attributes:
        coefficients: of each column; NaN where it has no number.
        errors: standard error of each.
        least: the least solution of all columns, 0 for those left out: equal columns have their sum in equal parts.
        unexplained: share of the gradient that no column explains.
        condition: of the columns, scaled to length 1.
        rounding: share of a length that one backward pass of the script's dtype adds.
        size: norm of the sketched gradient.
        inseparable: groups of columns that cannot be told apart.
        flat: columns with negligible gradient.
    """

    coefficients: Array
    errors: Array
    least: Array
    unexplained: float
    condition: float
    rounding: float
    size: float
    inseparable: tuple[tuple[int, ...], ...]
    flat: tuple[int, ...]

    def zero(self, columns: Array) -> Array:
        """Return for each column whether its coefficient is zero within its standard error."""
        return np.abs(self.coefficients[columns]) <= quantile(len(columns)) * self.errors[columns]

    def precision(self, columns: Array) -> float:
        """Return the largest error to expect of these columns' coefficients."""
        errors = self.errors[columns]
        return float(quantile(len(columns)) * np.nanmax(errors)) if np.isfinite(errors).any() else 0.0


def quantile(count: int) -> float:
    """Return how many standard errors the largest of `count` normal errors exceeds once in a million times."""
    return NormalDist().inv_cdf(1.0 - RARE / (2.0 * max(1, count)))


def fit(update: Update) -> Fit:
    """Return the least squares of the gradient on the columns, in float64.

    The standard error has two parts. One comes from what the fit leaves, or from the rounding of one backward pass where
    that is larger, as if all of it lay in the span of the columns. The other is the rounding of the column itself: the
    gradient of a log-prob is a difference of probabilities, which is small where the model is certain.
    """
    sketch, gradient = update.sketch, np.asarray(update.gradient, np.float64)
    norms = np.sqrt(np.einsum("kb,kb->k", sketch, sketch))
    size = float(np.linalg.norm(gradient))
    rounding = max(float(update.noise), ROUNDING)
    rough = np.divide(COLUMN * ROUNDING * norms.max(initial=0.0), norms, out=np.ones(len(norms)), where=norms > 0)
    flat = rough > KNOWN
    used = np.flatnonzero(norms > LEAST * norms.max(initial=0.0))
    coefficients, errors, least = np.full(len(norms), np.nan), np.full(len(norms), np.nan), np.zeros(len(norms))
    flat_columns = tuple(map(int, np.flatnonzero(flat)))
    if not len(used):
        return Fit(coefficients, errors, least, float(size > 0), 1.0, rounding, size, (), flat_columns)
    columns = sketch if len(used) == len(norms) else sketch[used]
    inverse, leak, condition = _inverse((columns @ columns.T) / np.outer(norms[used], norms[used]), rounding)
    scaled, left = np.zeros(len(used)), gradient
    for _ in range(3):  # a Gram matrix squares the condition: refinement gives the digits back
        scaled = scaled + inverse @ ((columns @ left) / norms[used])
        left = gradient - (scaled / norms[used]) @ columns
    spare = max(1, len(gradient) - len(used))
    residual = float(np.linalg.norm(left))
    spread = max(residual / spare**0.5, rounding * size / len(used) ** 0.5)
    diagonal = np.maximum(np.diag(inverse), 1.0) * spread**2 + np.diag(leak) * float(scaled @ scaled)
    separable = np.diag(leak) <= LEAK
    numbered = separable & ~flat[used]
    kept = used[numbered]
    least[used] = scaled / norms[used]
    coefficients[kept] = (scaled / norms[used])[numbered]
    own = np.hypot(rounding, rough[kept]) * coefficients[kept]
    errors[kept] = np.hypot(np.sqrt(diagonal)[numbered] / norms[kept], own)
    unexplained = residual / size * (len(gradient) / spare) ** 0.5 if size else 0.0
    groups = tuple(tuple(int(used[k]) for k in group) for group in _groups(leak, separable | flat[used]))
    return Fit(coefficients, errors, least, min(1.0, unexplained), condition, rounding, size, groups, flat_columns)


def _inverse(gram: Array, rounding: float) -> tuple[Array, Array, float]:
    """Return the inverse of a Gram matrix, the projection on what has no gradient, and the condition of the columns.

    Combinations of columns whose length is below the rounding of a backward pass have no gradient that is known.
    """
    least = max(rounding**2, len(gram) * 2.0**-50)
    try:
        inverse = np.linalg.inv(gram)
        smallest = 1.0 / _largest(inverse)
    except np.linalg.LinAlgError:
        smallest = 0.0
    if smallest > least:
        return inverse, np.zeros_like(gram), (_largest(gram) / smallest) ** 0.5
    values, vectors = np.linalg.eigh(gram)
    kept = values > least
    inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    leak = vectors[:, ~kept] @ vectors[:, ~kept].T
    return inverse, leak, float((values[-1] / values[kept][0]) ** 0.5)


def _largest(matrix: Array) -> float:
    """Return the largest eigenvalue of a symmetric matrix by power iteration; 0 if it is not finite."""
    vector = np.random.default_rng(0).standard_normal(len(matrix))
    value = 0.0
    for _ in range(STEPS):
        vector = vector / np.linalg.norm(vector)
        product = matrix @ vector
        value = float(np.linalg.norm(product))
        if not np.isfinite(value) or value == 0.0:
            return np.inf
        vector = product
    return value


def _groups(leak: Array, separable: Array) -> list[list[int]]:
    """Return the columns that are not separable, in groups that share a combination without gradient."""
    left = set(np.flatnonzero(~separable).tolist())
    groups = []
    while left:
        group, todo = [], [min(left)]
        left -= set(todo)
        while todo:
            column = todo.pop()
            group.append(column)
            near = {other for other in left if abs(leak[column, other]) > LEAK}
            left -= near
            todo += sorted(near)
        groups.append(sorted(group))
    return groups
