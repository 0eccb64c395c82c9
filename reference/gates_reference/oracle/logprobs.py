"""Log-probabilities of tokens from logits, where they lie in a sequence, and the way back for gradients."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gates_reference.oracle.definitions import logprobs as definition
from gates_reference.oracle.errors import logprobs as errors
from gates_reference.oracle.inputs import Bools, Floats, Ints, floats, integers, positive


def log_softmax(logits: npt.ArrayLike, *, temperature: float) -> Floats:
    """The log-probability of token v is (x_v - M) / tau - log sum_w exp((x_w - M) / tau), M the maximum.

    Args:
        logits: (..., V), finite or -inf (a token that cannot be drawn), at least one finite per row.
        temperature: tau, above 0.

    Returns:
        (..., V) float64, nats.

    Raises:
        ValueError: a NaN or +inf logit, a row of -inf only, no vocabulary axis, or tau not above 0.

    Source: the definition; docs/definitions.md, "Log-probabilities".
    """
    return definition.log_softmax(*_checked(logits, temperature))


def selective_log_softmax(
    logits: npt.ArrayLike, ids: npt.ArrayLike, *, temperature: float, ignore_index: int | None = None
) -> Floats:
    """The log-probabilities of the chosen tokens of each row.

    Args:
        logits: (..., V) as in `log_softmax`; a row whose every id is `ignore_index` is not read.
        ids: (...), or (..., K) for K tokens of a row; integers in [0, V).
        temperature: tau, above 0.
        ignore_index: the id that stands where no token is: its log-probability is 0.

    Returns:
        The shape of `ids`, float64, nats.

    Raises:
        ValueError: as `log_softmax`, or an id outside the vocabulary, or shapes that do not fit.

    Source: the definition; docs/definitions.md, "Log-probabilities".
    """
    asked = _asked(logits, ids, temperature, ignore_index)
    return asked.back(definition.selected(asked.x, asked.tokens, asked.tau))


def logprob_scale(
    logits: npt.ArrayLike, ids: npt.ArrayLike, *, temperature: float, ignore_index: int | None = None
) -> Floats:
    """The error of a log-probability is measured in units of |x_id - M| / tau + max(1, log sum exp((x - M) / tau)).

    Args:
        logits: as in `selective_log_softmax`.
        ids: as in `selective_log_softmax`.
        temperature: tau, above 0.
        ignore_index: as in `selective_log_softmax`; 0 there.

    Returns:
        The shape of `ids`, float64, nats.

    Raises:
        ValueError: as `selective_log_softmax`.

    Source: docs/definitions.md, "Accuracy".
    """
    asked = _asked(logits, ids, temperature, ignore_index)
    return asked.back(errors.selected_scale(asked.x, asked.tokens, asked.tau))


def entropy(
    logits: npt.ArrayLike, *, temperature: float, ids: npt.ArrayLike | None = None, ignore_index: int | None = None
) -> Floats:
    """H = -sum_v p_v log p_v of the temperature-scaled distribution; a token of probability 0 adds 0.

    Args:
        logits: (..., V) as in `log_softmax`.
        temperature: tau, above 0.
        ids: as in `selective_log_softmax`; with `ignore_index` a row whose every id is that is not read: H is 0.
        ignore_index: as in `selective_log_softmax`.

    Returns:
        (...) float64, nats.

    Raises:
        ValueError: as `log_softmax`.

    Source: Shannon (1948).
    """
    if ids is None:
        return definition.entropy(log_softmax(logits, temperature=temperature))
    asked = _asked(logits, ids, temperature, ignore_index)
    result = np.zeros(asked.read.shape)
    result[asked.read] = definition.entropy(definition.log_softmax(asked.x, asked.tau))
    return result


def selective_log_softmax_backward(
    logits: npt.ArrayLike,
    ids: npt.ArrayLike,
    grad_logprobs: npt.ArrayLike,
    *,
    temperature: float,
    grad_entropy: npt.ArrayLike | None,
    ignore_index: int | None = None,
) -> Floats:
    """dL/dx_v = (sum_k g_k (onehot(id_k)_v - p_v) - g_H p_v (log p_v + H)) / tau, with g = dL/dlogprob and g_H = dL/dH.

    Args:
        logits: as in `selective_log_softmax`.
        ids: as in `selective_log_softmax`.
        grad_logprobs: dL / d log p(id), the shape of `ids`; not read where an id is `ignore_index`.
        temperature: tau, above 0.
        grad_entropy: (...) dL / dH, or None for none.
        ignore_index: as in `selective_log_softmax`; a row of nothing else gets 0.

    Returns:
        (..., V) float64; 0 at a token of probability 0 that is not the chosen one.

    Raises:
        ValueError: as `selective_log_softmax`, or gradients of another shape.

    Source: the chain rule: d log p_id / dx_v = (onehot_v - p_v) / tau, dH / dx_v = -p_v (log p_v + H) / tau.
    """
    asked = _asked(logits, ids, temperature, ignore_index)
    result = np.zeros(np.shape(logits))
    upstream = _upstream(asked, grad_logprobs, grad_entropy)
    result[asked.read] = definition.backward(
        definition.log_softmax(asked.x, asked.tau), asked.tokens, *upstream, asked.tau
    )
    return result


def backward_scale(
    logits: npt.ArrayLike,
    ids: npt.ArrayLike,
    grad_logprobs: npt.ArrayLike,
    *,
    temperature: float,
    grad_entropy: npt.ArrayLike | None,
    ignore_index: int | None = None,
) -> Floats:
    """The error of a logit's gradient is measured by its own size and by what the error of log p_v does to it.

    With c_v = |x_v - M| / tau + max(1, log sum exp((x - M) / tau)), the scale of log p_v, the error of p_v is p_v c_v,
    and that of p_v (log p_v + H) is p_v (c_v |log p_v + H| + c_v + max(1, H)).

    Args:
        logits: as in `selective_log_softmax_backward`.
        ids: as in `selective_log_softmax_backward`.
        grad_logprobs: as in `selective_log_softmax_backward`.
        temperature: as in `selective_log_softmax_backward`.
        grad_entropy: as in `selective_log_softmax_backward`.
        ignore_index: as in `selective_log_softmax_backward`.

    Returns:
        (..., V) float64, at least 0.

    Raises:
        ValueError: as `selective_log_softmax_backward`.

    Source: docs/definitions.md, "Accuracy", through the formula of the gradient.
    """
    asked = _asked(logits, ids, temperature, ignore_index)
    result = np.zeros(np.shape(logits))
    upstream = _upstream(asked, grad_logprobs, grad_entropy)
    result[asked.read] = errors.backward_scale(asked.x, asked.tokens, *upstream, asked.tau)
    return result


def completion_slots(prompt_lengths: npt.ArrayLike, lengths: npt.ArrayLike, width: int) -> Bools:
    """Position t of a row scores token t + 1, so a completion of n tokens after P is scored at P - 1 ... P + n - 2.

    Args:
        prompt_lengths: (B,) P_i >= 1, tokens of the prompt at the start of the row.
        lengths: (B,) n_i >= 0, tokens of the completion, its first end-of-sequence included; padding follows.
        width: L, tokens per row with padding.

    Returns:
        (B, L - 1) bool.

    Raises:
        ValueError: a prompt without a token, or a row longer than L.

    Source: docs/definitions.md, "Log-probabilities".
    """
    prompts = integers("prompt_lengths", prompt_lengths, least=1)
    completions = integers("lengths", lengths, least=0)
    if prompts.ndim != 1 or prompts.shape != completions.shape:
        raise ValueError(f"`lengths` has shape {completions.shape}, must be (B,) like {prompts.shape}")
    over = np.flatnonzero(prompts + completions > width)
    if over.size:
        row = int(over[0])
        raise ValueError(f"row {row} has {prompts[row]} + {completions[row]} tokens, must fit in width {width}")
    return definition.slots(prompts, completions, width)


def completion_logprobs(
    logits: npt.ArrayLike,
    ids: npt.ArrayLike,
    prompt_lengths: npt.ArrayLike,
    lengths: npt.ArrayLike,
    completion_width: int,
    *,
    temperature: float,
) -> Floats:
    """Completion token s of row i is scored by the logits one position before it, and moved to slot s.

    Args:
        logits: (B, L, V); only the positions that score a completion token are read.
        ids: (B, L) tokens, prompt then completion then padding; only completion tokens are read.
        prompt_lengths: (B,) P_i >= 1.
        lengths: (B,) n_i >= 0.
        completion_width: T >= max n_i, slots of the result.
        temperature: tau, above 0.

    Returns:
        (B, T) float64, nats, 0.0 in masked slots.

    Raises:
        ValueError: shapes or lengths that do not fit; as `selective_log_softmax` for what is read.

    Source: docs/definitions.md, "Log-probabilities".
    """
    values, tokens, scored, filled = _aligned(logits, ids, prompt_lengths, lengths, completion_width)
    result = np.zeros(filled.shape)
    result[filled] = selective_log_softmax(values[scored], tokens, temperature=temperature)
    return result


def logits_gradient(
    logits: npt.ArrayLike,
    ids: npt.ArrayLike,
    prompt_lengths: npt.ArrayLike,
    lengths: npt.ArrayLike,
    loss_gradient: npt.ArrayLike,
    *,
    temperature: float,
) -> Floats:
    """The gradient is d loss / d logprob (onehot(id) - softmax(x / tau)) / tau where a completion token is scored.

    Args:
        logits: (B, L, V) as in `completion_logprobs`.
        ids: (B, L) tokens.
        prompt_lengths: (B,) P_i >= 1.
        lengths: (B,) n_i >= 0.
        loss_gradient: (B, T) d loss / d logprob; slots from n_i on are not read.
        temperature: tau, above 0.

    Returns:
        (B, L, V) float64, exactly 0 at every other position.

    Raises:
        ValueError: as `completion_logprobs`.

    Source: the chain rule.
    """
    upstream = floats("loss_gradient", loss_gradient, ndim=2)
    values, tokens, scored, filled = _aligned(logits, ids, prompt_lengths, lengths, upstream.shape[1])
    if upstream.shape != filled.shape:
        raise ValueError(f"`loss_gradient` has shape {upstream.shape}, must be {filled.shape}")
    gradient = np.zeros(values.shape)
    gradient[scored] = selective_log_softmax_backward(
        values[scored], tokens, upstream[filled], temperature=temperature, grad_entropy=None
    )
    return gradient


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """The rows that are read, n of them, and the tokens that are asked for.

    Attributes:
        x: (n, V) logits.
        tokens: (n, K), 0 where one is ignored.
        counts: (n, K), false where a token is ignored.
        read: (...), true where a row has a token that is not ignored.
        shape: that of the ids.
        tau: the temperature.
    """

    x: Floats
    tokens: Ints
    counts: Bools
    read: Bools
    shape: tuple[int, ...]
    tau: float

    def back(self, values: Floats) -> Floats:
        """Values of the tokens (n, K) in the shape of the ids, 0 where one is ignored."""
        result = np.zeros((*self.read.shape, self.tokens.shape[-1]))
        result[self.read] = np.where(self.counts, values, 0.0)
        return result.reshape(self.shape)


def _asked(logits: npt.ArrayLike, ids: npt.ArrayLike, temperature: float, ignore_index: int | None) -> _Asked:
    values, found = floats("logits", logits), np.asarray(ids)
    _vocabulary(values)
    rows = values.shape[:-1]
    if found.shape != rows and (found.ndim != values.ndim or found.shape[:-1] != rows):
        raise ValueError(f"`ids` has shape {found.shape}, must be {rows}, or that and the number of tokens of a row")
    each = found.reshape(*rows, -1) if found.size else found.reshape(*rows, 1)
    counts = np.ones(each.shape, np.bool_) if ignore_index is None else each != ignore_index
    read = np.asarray(np.any(counts, axis=-1))
    x, tau = _checked(values[read], temperature)
    tokens = integers("ids", np.where(counts, each, 0)[read], least=0, below=x.shape[-1])
    return _Asked(x, tokens, counts[read], read, found.shape, tau)


def _upstream(asked: _Asked, grad_logprobs: npt.ArrayLike, grad_entropy: npt.ArrayLike | None) -> tuple[Floats, Floats]:
    """The gradients by the log-probs (n, K) and the entropies (n,) of the rows that are read."""
    of_tokens = floats("grad_logprobs", grad_logprobs, shape=asked.shape)
    of_tokens = of_tokens.reshape(*asked.read.shape, asked.tokens.shape[-1])[asked.read]
    nothing = np.zeros(asked.read.shape)
    of_entropy = floats("grad_entropy", nothing if grad_entropy is None else grad_entropy, shape=asked.read.shape)
    return np.where(asked.counts, of_tokens, 0.0), of_entropy[asked.read]


def _vocabulary(values: Floats) -> None:
    if not values.ndim or not values.shape[-1]:
        raise ValueError(f"`logits` has shape {values.shape}, must have a vocabulary axis with at least one token")


def _checked(logits: npt.ArrayLike, temperature: float) -> tuple[Floats, float]:
    """The logits, whose rows all have a finite maximum, and the temperature."""
    values = floats("logits", logits)
    tau = positive("temperature", temperature)
    _vocabulary(values)
    largest = np.max(values, axis=-1, keepdims=True)
    if not np.all(np.isfinite(largest)):
        where = tuple(int(axis) for axis in np.argwhere(~np.isfinite(largest[..., 0]))[0])
        raise ValueError(f"`logits` has maximum {largest[where][0]}, must be finite, without NaN (in row {where})")
    return values, tau


def _aligned(
    logits: npt.ArrayLike,
    ids: npt.ArrayLike,
    prompt_lengths: npt.ArrayLike,
    lengths: npt.ArrayLike,
    completion_width: int,
) -> tuple[Floats, Ints, Bools, Bools]:
    """The logits, the tokens scored, the positions (B, L) that score them and the slots (B, T) they go to.

    Row-major order makes the positions and the slots correspond: both list a row's tokens from first to last.
    """
    values = floats("logits", logits, ndim=3)
    rows, width, vocabulary = values.shape
    tokens = np.asarray(ids)
    if tokens.shape != (rows, width):
        raise ValueError(f"`ids` has shape {tokens.shape}, must be {(rows, width)}")
    slots = completion_slots(prompt_lengths, lengths, width)
    completions = integers("lengths", lengths, least=0, below=completion_width + 1)
    if completions.shape != (rows,):
        raise ValueError(f"`lengths` has shape {completions.shape}, must be {(rows,)}")
    chosen = integers("ids", tokens[:, 1:][slots], least=0, below=vocabulary)
    scored = np.pad(slots, ((0, 0), (0, 1)))
    return values, chosen, scored, np.arange(completion_width) < completions[:, None]
