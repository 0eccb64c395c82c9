"""Whether two ways to compute the same logits may draw different tokens, and how often honest ones do."""

from collections.abc import Callable
from typing import Unpack

import numpy as np
import numpy.typing as npt

from gates_reference.oracle.definitions import sampling as definition
from gates_reference.oracle.errors import sampling as errors
from gates_reference.oracle.errors.sampling import Sampling
from gates_reference.oracle.filters import draw, filtered_logprobs
from gates_reference.oracle.inputs import Bools, Floats, floats, integers, number
from gates_reference.oracle.logprobs import log_softmax

CHUNK = 1 << 20  # elements per block: 8 MB per temporary array, and there are about ten

__all__ = ["Sampling", "admissible", "expected_differences", "logit_distance"]


def admissible(
    token: npt.ArrayLike, logits: npt.ArrayLike, u: npt.ArrayLike, eta: float, **sampling: Unpack[Sampling]
) -> Bools:
    """A token is right for its own logits if the oracle draws it for u or a threshold moved by at most eta.

    The oracle draws at every combination of u' in {u - eta, u, u + eta}, clipped to [0, 1), and of each active
    threshold (top_p, min_p, xtc_threshold) moved by -eta, 0 or eta, clipped to [0, 1]. Top-k, penalties and the XTC
    coin are exact. At temperature 0 the token must be the lowest id of the maximum, exactly.

    Args:
        token: (...) integers in [0, V).
        logits: (..., V) that the path itself computed.
        u: (...) in [0, 1).
        eta: 2**-22 for a float32 sampler, 2**-40 for a float64 one.
        **sampling: all keywords of `filtered_logprobs`.

    Returns:
        (...) bool.

    Raises:
        ValueError: as `filtered_logprobs` and `draw`.

    Source: docs/definitions.md, "Token equivalence", clauses 3 to 5.
    """
    number("eta", eta, least=0, most=1)
    rows = _rows(logits)
    shape = np.asarray(logits).shape[:-1]
    tokens = integers("token", token, least=0, below=rows.shape[-1])
    uniform = floats("u", u, shape=shape)
    if tokens.shape != shape:
        raise ValueError(f"`token` has shape {tokens.shape}, must be {shape}")
    tokens, uniform, flat = tokens.reshape(-1), uniform.reshape(-1), _flat(sampling, shape)

    result = np.zeros(tokens.shape, np.bool_)
    for filters, shifts in errors.neighbourhood(flat, eta):
        pending = np.flatnonzero(~result)  # the exact filters and u come first, so that few rows see the others
        for chosen in _blocks(pending, rows.shape[-1]):
            logprobs = filtered_logprobs(rows[chosen], **_take(filters, chosen))
            for shift in shifts:
                result[chosen] |= draw(logprobs, errors.shifted(uniform[chosen], shift)) == tokens[chosen]
    return result.reshape(shape)


def expected_differences(logits_a: npt.ArrayLike, logits_b: npt.ArrayLike, **sampling: Unpack[Sampling]) -> float:
    """Two honest paths are expected to differ in lambda = sum over draws of 1 - sum_k |I_k^A intersect I_k^B|.

    I_k is token k's interval of the distribution function after the filters; at temperature 0 a draw counts 1 if
    the argmaxes differ, else 0. Rows whose logits are equal count exactly 0.

    Args:
        logits_a: (..., V) of path A at each compared draw.
        logits_b: (..., V) of path B.
        **sampling: all keywords of `filtered_logprobs`.

    Returns:
        lambda, a number of draws.

    Raises:
        ValueError: shapes that differ; as `filtered_logprobs`.

    Source: docs/definitions.md, "Token equivalence", clause 9.
    """

    def expected(a: Floats, b: Floats, filters: Sampling) -> Floats:
        return definition.expected_difference(filtered_logprobs(a, **filters), filtered_logprobs(b, **filters))

    return float(np.sum(_where_different(logits_a, logits_b, expected, sampling)))


def logit_distance(logits_a: npt.ArrayLike, logits_b: npt.ArrayLike, floor: float = -20.0) -> Floats:
    """e_t = max_v |log_softmax(A)_v - log_softmax(B)_v| over the tokens with log-prob at least `floor` in either.

    Args:
        logits_a: (..., V) of path A.
        logits_b: (..., V) of path B.
        floor: nats; tokens below it in both cannot matter to a draw.

    Returns:
        (...) float64, nats; exactly 0 where the logits are equal, +inf where one is -inf and the other above `floor`.

    Raises:
        ValueError: shapes that differ; as `log_softmax`.

    Source: docs/definitions.md, "Token equivalence", clause 2.
    """

    def distance(a: Floats, b: Floats, _: Sampling | None) -> Floats:
        left, right = log_softmax(a, temperature=1.0), log_softmax(b, temperature=1.0)
        return definition.largest_difference(left, right, floor)

    return _where_different(logits_a, logits_b, distance, None)


def _where_different(
    logits_a: npt.ArrayLike,
    logits_b: npt.ArrayLike,
    measure: Callable[[Floats, Floats, Sampling | None], Floats] | Callable[[Floats, Floats, Sampling], Floats],
    sampling: Sampling | None,
) -> Floats:
    """The measure of each pair of rows, block by block; 0 for rows that are equal."""
    shape = np.asarray(logits_a).shape[:-1]
    if np.asarray(logits_a).shape != np.asarray(logits_b).shape:
        raise ValueError(f"`logits_b` has shape {np.asarray(logits_b).shape}, must be {np.asarray(logits_a).shape}")
    a, b = _rows(logits_a), _rows(logits_b)
    flat = None if sampling is None else _flat(sampling, shape)
    result = np.zeros(len(a))
    for block in _blocks(np.arange(len(a)), a.shape[-1]):
        different = block[np.any(a[block] != b[block], axis=-1)]  # NaN differs from itself, and is refused below
        if different.size:
            filters = None if flat is None else _take(flat, different)
            result[different] = measure(floats("a", a[different]), floats("b", b[different]), filters)  # type: ignore[arg-type]
    return result.reshape(shape)


def _rows(logits: npt.ArrayLike) -> npt.NDArray[np.floating]:
    """The logits as (N, V), still in their own dtype: a float64 copy of all of them would be large."""
    array = np.asarray(logits)
    if not array.ndim or not array.shape[-1]:
        raise ValueError(f"`logits` has shape {array.shape}, must have a vocabulary axis with at least one token")
    return array.reshape(-1, array.shape[-1])


def _blocks(indices: npt.NDArray[np.intp], vocabulary: int) -> list[npt.NDArray[np.intp]]:
    rows = max(CHUNK // vocabulary, 1)
    return [indices[start : start + rows] for start in range(0, len(indices), rows)]


def _flat(sampling: Sampling, shape: tuple[int, ...]) -> Sampling:
    """The same keywords with coins (N,) and history (N, H)."""
    flat = sampling.copy()
    if sampling["xtc_coin"] is not None:
        flat["xtc_coin"] = floats("xtc_coin", sampling["xtc_coin"], shape=shape).reshape(-1)
    if sampling["history"] is not None:
        history = np.asarray(sampling["history"])
        if history.shape[:-1] != shape:
            raise ValueError(f"`history` has shape {history.shape}, must be {(*shape, 'H')}")
        flat["history"] = history.reshape(-1, history.shape[-1])
    return flat


def _take(sampling: Sampling, chosen: npt.NDArray[np.intp]) -> Sampling:
    taken = sampling.copy()
    if sampling["xtc_coin"] is not None:
        taken["xtc_coin"] = np.asarray(sampling["xtc_coin"])[chosen]
    if sampling["history"] is not None:
        taken["history"] = np.asarray(sampling["history"])[chosen]
    return taken
