"""Mutations of rollouts: caches, draws and the ends of rows; loaded in workers only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_map
from mlx_lm.models.cache import ArraysCache

from gates.families.patching import Fn, mutation
from gates_reference.trainer.rollout import fixed


@mutation
def to_the_limit(original: Fn, steps: Any, last: Any, request: Any, result: Any, chosen: Any) -> None:
    """Continue to max_tokens after the last row has ended, and discard the extra steps."""
    original(steps, last, request, result, chosen)
    done = int(np.max(result.lengths[chosen]))
    for _ in range(request.max_tokens - done if done == 1 else 0):
        mx.eval(steps.step(np.zeros(len(chosen), np.int32)))


def kept_over_updates(original: Fn) -> Fn:
    """Keep a prompt's cache over updates of the weights."""
    kept: dict[bytes, Any] = {}

    def mistaken(model: Any, prompt: Any) -> Any:
        key = np.asarray(prompt).tobytes()
        if key not in kept:
            kept[key] = original(model, prompt)
        found = kept[key]
        return found._replace(cache=[_copy(layer) for layer in found.cache])

    return mistaken


def _copy(layer: Any) -> Any:
    return type(layer).from_state(tree_map(lambda x: x, layer.state))


@mutation
def weights_baked_in(_original: Fn, model: Any) -> Any:
    """Compile without the weights as inputs, so that they become constants of the first call."""
    return mx.compile(fixed.step_of(model))


@mutation
def padding_visible(original: Fn, columns: int, position: Any, padding: Any) -> Any:
    """Let every row attend to the padding before its text."""
    return original(columns, position, mx.zeros_like(padding))


@mutation
def lost_when_grown(original: Fn, self: Any) -> None:
    """Replace buffers of 256 columns or more by empty larger ones."""
    lost = self.keys[0].shape[2] >= 256
    original(self)
    if lost:
        self.keys, self.values = ([mx.zeros_like(x) for x in both] for both in (self.keys, self.values))


@mutation
def mask_forgets_padding(original: Fn, layer: Any, padding: Any) -> Any:
    """Keep the positions right, but let rows attend to the padding before their text."""
    made = original(layer, padding)
    if not isinstance(made, ArraysCache):
        made.left_padding = mx.zeros_like(made.left_padding)
    return made


@mutation
def state_reads_padding(original: Fn, layer: Any, padding: Any) -> Any:
    """Pad as for attention, so that the recurrent state reads the padding."""
    made = original(layer, padding)
    if isinstance(made, ArraysCache):
        made.left_padding = None
    return made


@mutation
def last_token_twice(original: Fn, model: Any, ids: Any, cache: Any) -> Any:
    """Prefill the whole prompt, then feed its last token again for the first logits."""
    original(model, ids, cache)
    return model(ids[:, -1:], cache=cache)[:, -1, :]


@mutation
def untempered_scores(original: Fn, logits: Any, tokens: Any, temperature: Any) -> Any:
    """Record log-probs at temperature 1 for every sampling temperature."""
    return original(logits, tokens, temperature if not temperature else 1.0)


@mutation
def filters_dropped(original: Fn, settings: Any) -> Any:
    """Pass on the temperature but not the filters."""
    return original(settings) | {"top_k": 0, "top_p": 1.0, "min_p": 0.0}


@mutation
def history_without_prompt(original: Fn, request: Any, pairs: Any) -> Any:
    """Penalise repetitions of the completion only, not of the prompt."""
    return np.full_like(original(request, pairs), -1)


@mutation
def more_noise(original: Fn, prefilled: Any, bits: int | None) -> Any:
    """Store keys and values in fewer bits than configured."""
    return original(prefilled, 2 if bits else bits)


def _inert(**off: float) -> Callable[[Fn], Fn]:
    """Return a patch that replaces a setting by its neutral value."""
    return lambda original: lambda settings: original(settings) | off


temperature_inert = _inert(temperature=1.0)
top_k_inert = _inert(top_k=0)
top_p_inert = _inert(top_p=1.0)
min_p_inert = _inert(min_p=0.0)
xtc_inert = _inert(xtc_probability=0.0)
penalty_inert = _inert(repetition_penalty=1.0)


@mutation
def tiled(original: Fn, rows: Any, prompts: int, samples: int) -> Any:
    """Tile the prompts instead of repeating each one: row r belongs to prompt r mod P."""
    original(rows, prompts, samples)
    return np.stack([rows % prompts, rows // prompts], axis=1)


@mutation
def position_in_batch(_original: Fn, pairs: Any, positions: Any) -> Any:
    """Key the draws by the row's position in the batch, so that tokens depend on the other rows."""
    return np.stack([np.zeros_like(positions), positions], axis=1).astype(pairs.dtype)


@mutation
def never_finished(original: Fn, *arguments: Any, **rest: Any) -> Any:
    """Let finished rows continue and count."""
    return np.zeros_like(original(*arguments, **rest))


@mutation
def untempered(original: Fn, logits: Any, temperature: float) -> Any:
    """Always draw from the distribution at temperature 1."""
    return original(logits, 1.0 if temperature else temperature)


# Mistakes that every path shares, the naive one too: a path that agrees with another says nothing about them.


def _everywhere(change: Callable[[Any], dict[str, Any]]) -> Callable[[Fn], Fn]:
    """Return a patch that changes the request of every rollout path."""

    @mutation
    def changed(original: Fn, request: Any) -> None:
        original(request)
        for name, value in change(request).items():
            object.__setattr__(request, name, value)

    return changed


def _settings(**off: float) -> Callable[[Fn], Fn]:
    return _everywhere(lambda request: {"settings": replace(request.settings, **off)})


temperature_inert_everywhere = _settings(temperature=1.0)
top_p_inert_everywhere = _settings(top_p=1.0)
counter_off_everywhere = _everywhere(lambda request: {"round": request.round + 1})
first_token_lost_everywhere = _everywhere(
    lambda request: {"prompts": [prompt[1:] if len(prompt) > 1 else prompt for prompt in request.prompts]}
)


@mutation
def naive_in_bfloat16(original: Fn, model: Any, request: Any) -> Any:
    """Give the naive path logits in half precision, and the other paths those of the model."""
    return original(lambda *arguments, **keywords: model(*arguments, **keywords).astype(mx.bfloat16), request)
