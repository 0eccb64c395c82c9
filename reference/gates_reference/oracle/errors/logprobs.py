"""What an error of a log-probability, and of a gradient by a logit, is measured in.

Source: docs/definitions.md, "Accuracy".
"""

import numpy as np

from gates_reference.oracle.definitions import logprobs as definition
from gates_reference.oracle.inputs import Floats, Ints


def selected_scale(x: Floats, ids: Ints, tau: float) -> Floats:
    """The scale S = |x_id - M| / tau + max(1, log sum exp((x - M) / tau))."""
    scaled = definition.shifted(x, tau)
    return np.abs(definition.at(scaled, ids)) + np.maximum(1.0, definition.log_sum(scaled))


def backward_scale(x: Floats, ids: Ints, g: Floats, g_entropy: Floats, tau: float) -> Floats:
    """The scale S is the gradient's absolute terms and what the errors of p_v and of p_v (log p_v + H) add to them.

    With c_v = |x_v - M| / tau + max(1, log sum exp((x - M) / tau)), the scale of log p_v, the error of p_v is p_v c_v,
    and that of p_v (log p_v + H) is p_v (c_v |log p_v + H| + c_v + max(1, H)).
    """
    scaled = definition.shifted(x, tau)
    log_sum = definition.log_sum(scaled)
    logprobs = scaled - log_sum
    p, distance = np.exp(logprobs), np.abs(definition.above_mean(logprobs))
    c = np.where(scaled > -np.inf, -scaled + np.maximum(1.0, log_sum), 0.0)
    of_entropy = p * (c * distance + c + np.maximum(1.0, definition.entropy(logprobs)[..., None]))
    sizes, size_entropy = np.abs(g), np.abs(g_entropy)[..., None]
    size = np.sum(sizes, axis=-1, keepdims=True)
    of_tokens = np.sum(sizes[..., None] * np.abs(definition.onehot(ids, p.shape[-1]) - p[..., None, :]), axis=-2)
    value = of_tokens + size_entropy * p * distance
    return np.asarray((value + (size * p * c + size_entropy * of_entropy)) / tau)
