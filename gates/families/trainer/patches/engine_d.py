"""Mistakes in scoring and in the loss: passes of old and reference policy, KL, masks, weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mlx.core as mx

from gates.families.patching import Fn, mutation
from gates_reference.trainer import double, heads, logprobs
from gates_reference.trainer.adapters import dropout, layers


@mutation
def kl_swapped(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Estimate k3 of policy - reference instead of reference - policy."""
    policy, reference, *estimator = arguments
    if (estimator or ["k3"])[0] != "k3":
        return original(*arguments, **keywords)
    return double.k3(*double.difference(policy, mx.stop_gradient(reference)))


@mutation
def entropy_threshold_per_micro_batch(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Take the entropy quantile of each micro-batch instead of the whole step's."""
    batch, totals, share = arguments
    own = replace(totals, entropy_threshold=None, entropy_tokens=None, micro_batches=1)
    return original(batch, own, share, **keywords)


@mutation
def truncation_by_length(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Take every completion of the greatest length for truncated, also if it has an end token."""
    (generation,) = arguments
    shorter = generation.lengths < generation.tokens.shape[1]
    masked = original(replace(generation, ended=generation.ended & shorter), **keywords)
    return replace(masked, ended=generation.ended)


@mutation
def correction_from_current_policy(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Compute off-policy weights from the current instead of the old policy."""
    algorithm, batch = arguments
    return original(algorithm, replace(batch, old=None), **keywords)


@mutation
def old_with_dropout(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Leave dropout on while the old log-probs are computed."""
    engine = arguments[0]
    adapter = engine.config.adapter
    if not adapter.dropout:
        return original(*arguments, **keywords)
    with dropout.drawn(engine.model, adapter.seed, 0):
        return original(*arguments, **keywords)


@mutation
def reference_keeps_embedding_adapters(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Leave the adapters of embeddings, and so of a tied head, on in the reference pass."""
    off = original(*arguments, **keywords)
    return {name: x for name, x in off.items() if not isinstance(layers.inner(x), layers.EMBEDDING)}


@mutation
def head_without_cap(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Apply the bare projection where the model also caps or scales its logits."""
    model, states = arguments
    settings = getattr(model, "args", None)
    if not any(getattr(settings, name, None) for name in ("final_logit_softcapping", "logit_scale")):
        return original(*arguments, **keywords)
    return model.lm_head(states) if "lm_head" in model else model.model.embed_tokens.as_linear(states)


@mutation
def head_scores_not_raised(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Take the log-softmax in the model's own type instead of float32."""
    model, states, ids, temperature = arguments
    logits = heads.logits(model, states[None])[0]
    if logits.dtype == mx.float32:
        return original(*arguments, **keywords)
    values = logprobs.token_logprobs(logits, ids, temperature).astype(mx.float32)
    if not keywords["entropy"]:
        return values, values
    return values, logprobs.token_entropy(logits.astype(mx.float32), temperature)
