"""Mistakes in rollouts: requests, draws, resampling, caches, and the texts that rewards read."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np

from gates.families.patching import Fn, mutation


@mutation
def one_eos_only(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Stop at the tokenizer's own end token only."""
    (tokenizer,) = arguments
    own = tokenizer.eos_token_id
    return original(*arguments, **keywords) if own is None else (int(own),)


@mutation
def repeated_prompt_same_draws(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Start the sample numbers of a prompt's second occurrence at 0 again."""
    return [0] * len(original(*arguments, **keywords))


@mutation
def resample_same_prompts(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Resample the prompts of the first rollout instead of the next ones."""
    model, source, algorithm, upcoming = arguments
    again = list(upcoming[: keywords["wanted"]]) * (1 + keywords["max_resamples"])
    return original(model, source, algorithm, again, **keywords)


@mutation
def filter_order_ignored(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Apply the filters in the order of the default, whatever is configured."""
    return {**original(*arguments, **keywords), "order": "hf"}


@mutation
def behaviour_unfiltered(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Record the unfiltered log-probs as those of the distribution drawn from."""
    drawn = original(*arguments, **keywords)
    return replace(drawn, behaviour=drawn.temperature_scaled)


@mutation
def rollout_one_step_stale(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Roll out with the adapters from before the last step's updates."""
    engine = arguments[0]
    now = engine.model.trainable_parameters()
    engine.model.update(getattr(engine.optimizer, "former", now))
    try:
        return original(*arguments, **keywords)
    finally:
        engine.model.update(now)
        engine.optimizer.former = now


_PREFIXES: dict[tuple[int, bytes], Any] = {}


@mutation
def prefix_cache_kept(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Reuse a prompt's cache in later rollouts, although the adapters have changed."""
    model, prompt = arguments
    key = (id(model), np.asarray(prompt).tobytes())
    if key not in _PREFIXES:
        _PREFIXES[key] = original(*arguments, **keywords)
    return copy.deepcopy(_PREFIXES[key])


@mutation
def truncated_loses_last_token(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Strip the last token of every completion from its text, also if it is no end token."""
    tokenizer, every, chosen, result, group_size = arguments
    ended = replace(result, ended=np.ones_like(result.ended))
    return original(tokenizer, every, chosen, ended, group_size, **keywords)
