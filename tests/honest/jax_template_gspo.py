"""The template filled in for GSPO in JAX: the geometric mean of the ratios, GAE by a scan.

    gates check --subject tests/honest/jax_template_gspo.py

Gates loads this file in a process of its own, in this interpreter or in the one that `--python` names. Nothing of Gates
is needed there: only NumPy, jax and your library. Fill in what your library has, by calling it; repair nothing
here, or the repair is judged. Delete the arguments with a default that your code does not have: a case that needs one
is `unsupported` then, as is what raises NotImplementedError; neither is ever a pass. `gates ops` lists every op.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

VERSIONS: dict[str, str] = {"numpy": np.__version__, "jax": jax.__version__}  # shown in results; add your library's
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


jax.config.update("jax_enable_x64", True)  # or float64 inputs become float32


def loss_and_gradient(function: Any, variable: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """Call a loss with arrays; return its value, and autograd's gradient by the variable in the variable's dtype."""
    given = {name: _array(value) for name, value in inputs.items()}
    leaf = given.pop(variable)
    loss, gradient = jax.value_and_grad(lambda x: function(x, **given))(leaf)
    return {"loss": float(loss), "gradient": np.asarray(gradient)}


def _array(value: Any) -> Any:
    return jnp.asarray(value.astype(value.dtype.newbyteorder("="))) if isinstance(value, np.ndarray) else value


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
    """GSPO of arXiv 2507.18071, without a KL."""
    mask = jnp.ones(policy.shape, bool) if mask is None else mask
    old = jax.lax.stop_gradient(policy) if old is None else old
    lengths = jnp.maximum(mask.sum(axis=-1), 1)
    ratio = jnp.exp(jnp.where(mask, policy - old, 0.0).sum(axis=-1) / lengths)
    clipped = jnp.clip(ratio, 1 - epsilon_low, 1 + epsilon_high)
    per_row = jnp.minimum(ratio * advantages, clipped * advantages)
    return -jnp.mean(jnp.where(mask.any(axis=-1), per_row, 0.0))


@provides("policy_loss", algorithm=("gspo",))
@functools.wraps(policy_loss_of_arrays)  # its arguments: cases with one deleted there are `unsupported`
def policy_loss(**inputs):
    """Return the loss of `policy_loss_of_arrays`, and its gradient by `policy`."""
    return loss_and_gradient(policy_loss_of_arrays, "policy", inputs)


@provides("group_advantages", scale=("group",), baseline=("mean",), ddof=(0,), eps=(1e-6,), eps_mode=("add",))
def group_advantages(*, rewards, group_size=None):
    """One group at a time, by vmap."""

    def normalised(group):
        return (group - group.mean()) / (group.std() + 1e-6)

    return {"advantages": np.asarray(jax.vmap(normalised)(_array(rewards).reshape(-1, group_size)).ravel())}


@provides("gae")
def gae(*, rewards, values, gamma, lam, bootstrap=None, terminal=None):
    """A reversed scan over the steps of all rows."""
    rewards, values = _array(rewards).T, _array(values).T
    last = jnp.zeros_like(values[0]) if bootstrap is None else _array(bootstrap)
    alive = jnp.ones_like(values) if terminal is None else 1.0 - _array(terminal).T.astype(values.dtype)

    def step(carry, now):
        advantage, next_value = carry
        reward, value, on = now
        delta = reward + gamma * next_value * on - value
        advantage = delta + gamma * lam * on * advantage
        return (advantage, value), advantage

    _, advantages = jax.lax.scan(step, (jnp.zeros_like(last), last), (rewards, values, alive), reverse=True)
    return {"advantages": np.asarray(advantages.T)}


@provides("token_kl", estimator=("k3",))
def token_kl(*, policy, reference=None, mask=None):
    """expm1(d) − d."""
    d = _array(reference) - _array(policy)
    kl = jnp.expm1(d) - d
    return {"kl": np.asarray(kl if mask is None else jnp.where(_array(mask), kl, 0.0))}
