"""CISPO and SAPO in JAX, one row at a time under vmap, with stop_gradient and jax.nn.sigmoid.

gates check loss --subject tests/honest/jax_loss_rows.py --python PYTHON_WITH_JAX
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

VERSIONS = {"jax": jax.__version__}
jax.config.update("jax_enable_x64", True)


def cispo(logps: Any, old: Any, advantages: Any, cap: float) -> Any:
    """−sg(min(r, cap)) · A · log π."""
    return -jax.lax.stop_gradient(jnp.minimum(jnp.exp(logps - old), cap)) * advantages * logps


def sapo(logps: Any, old: Any, advantages: Any, positive: float, negative: float) -> Any:
    """−(4 / τ) σ(τ (r − 1)) A."""
    tau = jnp.where(advantages > 0, positive, negative).astype(logps.dtype)
    return -4 / tau * jax.nn.sigmoid(tau * (jnp.exp(logps - old) - 1)) * advantages


def policy_loss(
    *,
    policy: Any,
    mask: Any = None,
    old: Any = None,
    advantages: Any,
    algorithm: str,
    epsilon_high: Any = None,
    cispo_bound: Any = None,
    sapo_temperature_positive: Any = None,
    sapo_temperature_negative: Any = None,
) -> dict[str, Any]:
    """Sum over the tokens of each row; CISPO divides by all tokens, SAPO by each row's."""
    keep = jnp.ones(policy.shape, bool) if mask is None else jnp.asarray(mask)

    def of_row(logps: Any, behaviour: Any, gain: Any, kept: Any) -> Any:
        if algorithm == "cispo":
            losses = cispo(logps, behaviour, gain, 1 + epsilon_high)
        else:
            losses = sapo(logps, behaviour, gain, sapo_temperature_positive, sapo_temperature_negative)
        total = jnp.where(kept, losses, 0.0).sum()
        return total if algorithm == "cispo" else total / jnp.maximum(kept.sum(), 1)

    def loss(logps: Any) -> Any:
        behaviour = jax.lax.stop_gradient(logps) if old is None else jnp.asarray(old)
        rows = jax.vmap(of_row)(logps, behaviour, jnp.asarray(advantages), keep)
        return rows.sum() / jnp.maximum(keep.sum(), 1) if algorithm == "cispo" else rows.mean()

    value, gradient = jax.value_and_grad(loss)(jnp.asarray(policy))
    return {"loss": float(value), "gradient": np.asarray(gradient)}


OPS = {"policy_loss": policy_loss}
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("cispo", "sapo"),
        "dapo_denominator": ("global",),
        "cispo_bound": ("relative",),
        "empty_rows": (False,),
    }
}
