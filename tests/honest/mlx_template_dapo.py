"""The template filled in for DAPO in MLX: two widths, one mean over all tokens, no KL.

    gates check --subject tests/honest/mlx_template_dapo.py

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


def policy_loss_of_arrays(
    policy,
    *,
    advantages,
    algorithm,
    mask=None,
    old=None,
    epsilon_low=None,
    epsilon_high=None,
):
    """DAPO of arXiv 2503.14476."""
    mask = mx.ones_like(policy) if mask is None else mask.astype(policy.dtype)
    old = mx.stop_gradient(policy) if old is None else old
    if advantages.ndim == 1:
        advantages = mx.expand_dims(advantages, 1)
    ratio = mx.exp((policy - old) * mask)
    loss = mx.maximum(-ratio * advantages, -mx.clip(ratio, 1 - epsilon_low, 1 + epsilon_high) * advantages)
    return (loss * mask).sum() / mx.maximum(mask.sum(), 1)


@provides("policy_loss", algorithm=("dapo",), dapo_denominator=("global",), dtype=("float32",))
@functools.wraps(policy_loss_of_arrays)  # its arguments: cases with one deleted there are `unsupported`
def policy_loss(**inputs):
    """Return the loss of `policy_loss_of_arrays`, and its gradient by `policy`."""
    return loss_and_gradient(policy_loss_of_arrays, "policy", inputs)


@provides(
    "group_advantages",
    scale=("group",),
    baseline=("mean",),
    ddof=(0,),
    eps=(1e-8,),
    eps_mode=("add",),
    dtype=("float32",),
)
def group_advantages(*, rewards, group_size=None):
    """Equal rewards are left out by dynamic sampling; here they give 0."""
    groups = _array(rewards).reshape(-1, group_size)
    centred = groups - mx.mean(groups, axis=1, keepdims=True)
    centred = mx.where(groups.max(axis=1, keepdims=True) == groups.min(axis=1, keepdims=True), 0.0, centred)
    return {"advantages": np.array((centred / (mx.std(groups, axis=1, keepdims=True) + 1e-8)).reshape(-1))}


@provides("token_kl", estimator=("k1",), dtype=("float32",))
def token_kl(*, policy, estimator, reference=None, mask=None):
    """The log-ratio itself."""
    kl = _array(policy) - _array(reference)
    return {"kl": np.array(kl if mask is None else mx.where(_array(mask), kl, 0.0))}


@provides("importance_ratio", level=("token",), dtype=("float32",))
def importance_ratio(*, policy, level, old=None, mask=None):
    """π / π_old."""
    ratio = mx.exp(_array(policy) - _array(old))
    return {"ratio": np.array(ratio if mask is None else mx.where(_array(mask), ratio, 0.0))}
