"""The template filled in for reference-free preference losses in MLX: SimPO and ORPO over mean log-probs.

    gates check --subject tests/honest/mlx_template_simpo.py

Gates loads this file in a process of its own, in this interpreter or in the one that `--python` names. Nothing of Gates
is needed there: only NumPy, mlx and your library. Fill in what your library has, by calling it; repair nothing
here, or the repair is judged. Delete the arguments with a default that your code does not have: a case that needs one
is `unsupported` then, as is what raises NotImplementedError; neither is ever a pass. `gates ops` lists every op.
"""

from __future__ import annotations

import functools
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn

VERSIONS: dict[str, str] = {"numpy": np.__version__, "mlx": mx.__version__}  # shown in results; add your library's
# By a gate's name (`gates explain GATE` ends with it) where your documentation says that yours differs, such as
# "policy_loss[grpo]": "README, section Loss". A failure there is shown as `departs`; it still fails the run.
DEPARTURES_DOCUMENTED: dict[str, str] = {}
OPS: dict[str, Any] = {}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {}


def provides(op: str, **conventions: tuple[Any, ...]) -> Any:
    """Declare that a function is an op, with the choices that it has: a case that needs another one is `unsupported`.

    A convention that is not named is asked in every choice, but those that are asked only of a subject that declares
    them: their lines say so. For one call, `raise NotImplementedError("why")` says `unsupported` too.
    """

    def register(function: Any) -> Any:
        if op in OPS:
            raise ValueError(f"{op} is provided twice")
        OPS[op], CONVENTIONS[op] = function, conventions
        return function

    return register


def loss_and_gradient(function: Any, variable: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """Call a loss with arrays; return its value, and autograd's gradient by the variable in the variable's dtype.

    MLX has float64 on the CPU only, and there its exp and log keep about the digits of float32: declare
    dtype=("float32",) unless your loss needs neither.
    """
    double = inputs[variable].dtype.itemsize == 8
    with mx.stream(mx.cpu if double else mx.default_device()):
        given = {name: _array(value) for name, value in inputs.items()}
        leaf = given.pop(variable)
        loss, gradient = mx.value_and_grad(lambda x: function(x, **given))(leaf)
        mx.eval(loss, gradient)
        return {"loss": loss.item(), "gradient": np.array(gradient)}


def _array(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    native = value.astype(value.dtype.newbyteorder("="), order="C")
    return mx.array(native, dtype=mx.float64) if native.dtype == np.float64 else mx.array(native)


def mean_logps(policy, mask):
    """The average log-prob of a completion's tokens."""
    return mx.where(mask, policy, 0.0).sum(axis=1) / mask.sum(axis=1)


def preference_loss_of_arrays(policy, *, mask, loss, beta, margin=None):
    """SimPO of arXiv 2405.14734, or ORPO of 2403.07691."""
    logps = mean_logps(policy, mask)
    chosen, rejected = logps[0::2], logps[1::2]
    if loss == "simpo":
        return -nn.log_sigmoid(beta * (chosen - rejected) - margin).mean()
    log_odds = chosen - rejected - (mx.log1p(-mx.exp(chosen)) - mx.log1p(-mx.exp(rejected)))
    return (-chosen - beta * nn.log_sigmoid(log_odds)).mean()


@provides("preference_loss", loss=("simpo", "orpo"), dtype=("float32",), nll_tokens=("completion",))
@functools.wraps(preference_loss_of_arrays)  # its arguments: cases with one deleted there are `unsupported`
def preference_loss(**inputs):
    """Return the loss of `preference_loss_of_arrays`, and its gradient by `policy`."""
    return loss_and_gradient(preference_loss_of_arrays, "policy", inputs)


@provides("prefer")
def prefer(*, scores):
    """The judge's higher score wins, the first of two equal ones."""
    if np.isnan(scores).any():
        raise NotImplementedError("every completion has a score")
    signs = np.ones(len(scores))
    for i in range(0, len(scores), 2):
        signs[i if scores[i + 1] > scores[i] else i + 1] = -1.0
    return {"signs": signs}


@provides("filtered_logprobs", order=("mlx-lm",))
def filtered_logprobs(*, logits, order, temperature=1.0, min_p=0.0):
    """min-p on the untempered distribution, then the temperature, as mlx-lm orders them."""
    if logits.dtype != np.float32 or temperature == 0.0:
        raise NotImplementedError("float32, and no greedy decoding")
    logprobs = _array(logits) - mx.logsumexp(_array(logits), axis=-1, keepdims=True)
    if min_p:
        floor = mx.max(logprobs, axis=-1, keepdims=True) + float(np.log(min_p))
        logprobs = mx.where(logprobs < floor, -mx.inf, logprobs)
    logprobs = logprobs * (1 / temperature)
    return {"logprobs": np.array(logprobs - mx.logsumexp(logprobs, axis=-1, keepdims=True))}
