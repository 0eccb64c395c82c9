"""The one door to all paths: the fastest that this model can take here, or the one that is named."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from reference.trainer.rollout import batched, cached, compiled, naive, prefix, table

Path = Callable[[Any, table.Request], table.Rollout]

PATHS: Final[Mapping[str, Any]] = {
    "naive": naive,
    "cached": cached,
    "prefix": prefix,
    "batched": batched,
    "compiled": compiled,
}
"""Modules with `rollout(model, request)`; all give the same tokens, and `naive` defines which."""


def run(model: Any, request: table.Request, path: str = "auto") -> table.Rollout:
    """Roll out by the named path; `auto` takes the fastest that this model can take.

    The table's `path` says which one ran, its `reason` why not a faster one.

    Raises:
        ValueError: a path that is not there.
        NotImplementedError: a model, or `kv_bits`, that the named path does not have.
    """
    if path == "auto":
        return _fastest(model, request)
    if path not in PATHS:
        raise ValueError(f"path is {path!r}, must be 'auto' or one of {sorted(PATHS)}")
    result: table.Rollout = PATHS[path].rollout(model, request)
    return result


def _fastest(model: Any, request: table.Request) -> table.Rollout:
    reason = "kv_bits: mlx-lm cannot merge quantised caches" if request.kv_bits is not None else batched.why_not(model)
    if not reason:
        return compiled.rollout(model, request)
    result = prefix.rollout(model, request)
    result.reason = reason
    return result
