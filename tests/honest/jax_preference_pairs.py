"""Preference losses of one pair, vmapped over pairs, in JAX: DPO by log_sigmoid, ORPO by log(−expm1), SimPO.

gates check preference --subject tests/honest/jax_preference_pairs.py --python PYTHON_WITH_JAX
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

VERSIONS = {"jax": jax.__version__}
jax.config.update("jax_enable_x64", True)


def dpo(pair: Any, reference: Any, mask: Any, beta: float) -> Any:
    """−log σ(β (Δ_c − Δ_r))."""
    moved = jnp.sum(jnp.where(mask, pair - reference, 0.0), axis=-1)
    return -jax.nn.log_sigmoid(beta * (moved[0] - moved[1]))


def orpo(pair: Any, mask: Any, beta: float) -> Any:
    """−mean log π − λ log σ(log odds ratio)."""
    means = jnp.sum(jnp.where(mask, pair, 0.0), axis=-1) / mask.sum(axis=-1)
    odds = means - jnp.log(-jnp.expm1(means))
    return -means[0] - beta * jax.nn.log_sigmoid(odds[0] - odds[1])


def simpo(pair: Any, mask: Any, beta: float, margin: float) -> Any:
    """−log σ(β (mean_c − mean_r) − γ)."""
    means = jnp.sum(jnp.where(mask, pair, 0.0), axis=-1) / mask.sum(axis=-1)
    return -jax.nn.log_sigmoid(beta * (means[0] - means[1]) - margin)


def preference_loss(
    *, policy: Any, mask: Any, loss: str, beta: float, reference: Any = None, margin: Any = None
) -> dict[str, Any]:
    """Return the mean over pairs, and its gradient."""
    masks = jnp.asarray(mask).reshape(-1, 2, mask.shape[1])
    fixed = jnp.asarray(np.zeros_like(policy) if reference is None else reference).reshape(masks.shape)

    def mean(logps: Any) -> Any:
        pairs = logps.reshape(masks.shape)
        if loss == "dpo":
            return jax.vmap(lambda x, r, m: dpo(x, r, m, beta))(pairs, fixed, masks).mean()
        if loss == "orpo":
            return jax.vmap(lambda x, m: orpo(x, m, beta))(pairs, masks).mean()
        return jax.vmap(lambda x, m: simpo(x, m, beta, margin))(pairs, masks).mean()

    value, gradient = jax.jit(jax.value_and_grad(mean))(jnp.asarray(policy))
    return {"loss": float(value), "gradient": np.asarray(gradient)}


OPS = {"preference_loss": preference_loss}
CONVENTIONS = {"preference_loss": {"loss": ("dpo", "orpo", "simpo"), "nll_tokens": ("completion",)}}
