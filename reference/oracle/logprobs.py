"""Log-probabilities of tokens from logits, where they lie in a sequence, and the way back for gradients."""

import numpy as np
import numpy.typing as npt

from reference.oracle.definitions import logprobs as definition
from reference.oracle.errors import logprobs as errors
from reference.oracle.inputs import Bools, Floats, Ints, floats, integers, positive


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


def selective_log_softmax(logits: npt.ArrayLike, ids: npt.ArrayLike, *, temperature: float) -> Floats:
    """The log-probability of the chosen token of each row.

    Args:
        logits: (..., V) as in `log_softmax`.
        ids: (...) integers in [0, V).
        temperature: tau, above 0.

    Returns:
        (...) float64, nats.

    Raises:
        ValueError: as `log_softmax`, or an id outside the vocabulary, or shapes that do not fit.

    Source: the definition; docs/definitions.md, "Log-probabilities".
    """
    values, tau = _checked(logits, temperature)
    return definition.selected(values, _tokens(ids, values), tau)


def logprob_scale(logits: npt.ArrayLike, ids: npt.ArrayLike, *, temperature: float) -> Floats:
    """The error of a log-probability is measured in units of |x_id - M| / tau + max(1, log sum exp((x - M) / tau)).

    Args:
        logits: (..., V) as in `log_softmax`.
        ids: (...) integers in [0, V).
        temperature: tau, above 0.

    Returns:
        (...) float64, nats.

    Raises:
        ValueError: as `selective_log_softmax`.

    Source: docs/definitions.md, "Accuracy".
    """
    values, tau = _checked(logits, temperature)
    return errors.selected_scale(values, _tokens(ids, values), tau)


def entropy(logits: npt.ArrayLike, *, temperature: float) -> Floats:
    """H = -sum_v p_v log p_v of the temperature-scaled distribution; a token of probability 0 adds 0.

    Args:
        logits: (..., V) as in `log_softmax`.
        temperature: tau, above 0.

    Returns:
        (...) float64, nats.

    Raises:
        ValueError: as `log_softmax`.

    Source: Shannon (1948).
    """
    return definition.entropy(log_softmax(logits, temperature=temperature))


def selective_log_softmax_backward(
    logits: npt.ArrayLike,
    ids: npt.ArrayLike,
    grad_logprobs: npt.ArrayLike,
    *,
    temperature: float,
    grad_entropy: npt.ArrayLike | None,
) -> Floats:
    """dL/dx_v = (g (onehot(id)_v - p_v) - g_H p_v (log p_v + H)) / tau, with g = dL/dlogprob and g_H = dL/dH.

    Args:
        logits: (..., V) as in `log_softmax`.
        ids: (...) integers in [0, V).
        grad_logprobs: (...) dL / d log p(id).
        temperature: tau, above 0.
        grad_entropy: (...) dL / dH, or None for none.

    Returns:
        (..., V) float64; 0 at a token of probability 0 that is not the chosen one.

    Raises:
        ValueError: as `selective_log_softmax`, or gradients of another shape.

    Source: the chain rule: d log p_id / dx_v = (onehot_v - p_v) / tau, dH / dx_v = -p_v (log p_v + H) / tau.
    """
    values, tau = _checked(logits, temperature)
    tokens, upstream = _tokens(ids, values), _upstream(values, grad_logprobs, grad_entropy)
    return definition.backward(definition.log_softmax(values, tau), tokens, *upstream, tau)


def backward_scale(
    logits: npt.ArrayLike,
    ids: npt.ArrayLike,
    grad_logprobs: npt.ArrayLike,
    *,
    temperature: float,
    grad_entropy: npt.ArrayLike | None,
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

    Returns:
        (..., V) float64, at least 0.

    Raises:
        ValueError: as `selective_log_softmax_backward`.

    Source: docs/definitions.md, "Accuracy", through the formula of the gradient.
    """
    values, tau = _checked(logits, temperature)
    return errors.backward_scale(values, _tokens(ids, values), *_upstream(values, grad_logprobs, grad_entropy), tau)


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


def _upstream(
    values: Floats, grad_logprobs: npt.ArrayLike, grad_entropy: npt.ArrayLike | None
) -> tuple[Floats, Floats]:
    """The gradients by each row's log-prob and entropy."""
    shape = values.shape[:-1]
    of_entropy = np.zeros(shape) if grad_entropy is None else grad_entropy
    return floats("grad_logprobs", grad_logprobs, shape=shape), floats("grad_entropy", of_entropy, shape=shape)


def _checked(logits: npt.ArrayLike, temperature: float) -> tuple[Floats, float]:
    """The logits, whose rows all have a finite maximum, and the temperature."""
    values = floats("logits", logits)
    tau = positive("temperature", temperature)
    if not values.ndim or not values.shape[-1]:
        raise ValueError(f"`logits` has shape {values.shape}, must have a vocabulary axis with at least one token")
    largest = np.max(values, axis=-1, keepdims=True)
    if not np.all(np.isfinite(largest)):
        where = tuple(int(axis) for axis in np.argwhere(~np.isfinite(largest[..., 0]))[0])
        raise ValueError(f"`logits` has maximum {largest[where][0]}, must be finite, without NaN (in row {where})")
    return values, tau


def _tokens(ids: npt.ArrayLike, rows: Floats) -> Ints:
    tokens = integers("ids", ids, least=0, below=rows.shape[-1])
    if tokens.shape != rows.shape[:-1]:
        raise ValueError(f"`ids` has shape {tokens.shape}, must be {rows.shape[:-1]}")
    return tokens


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
