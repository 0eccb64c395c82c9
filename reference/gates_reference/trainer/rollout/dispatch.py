"""Choose a rollout path: the fastest that supports the model on this machine, or the one named."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from gates_reference.trainer.rollout import batched, cached, compiled, naive, prefix, table

Path = Callable[[Any, table.Request], table.Rollout]

PATHS: Final[Mapping[str, Any]] = {
    "naive": naive,
    "cached": cached,
    "prefix": prefix,
    "batched": batched,
    "compiled": compiled,
}
"""Modules with `rollout(model, request)`; all give the same tokens, defined by `naive`."""


def run(model: Any, request: table.Request, path: str = "auto") -> table.Rollout:
    """Roll out by the named path; `auto` takes the fastest that supports the model.

    The result's `path` is the path that ran, its `reason` why no faster one did.

    Raises:
        ValueError: the path is unknown.
        NotImplementedError: the named path does not support the model or `kv_bits`.
    """
    if path == "auto":
        return _fastest(model, request)
    if path not in PATHS:
        raise ValueError(f"path is {path!r}, must be 'auto' or one of {sorted(PATHS)}")
    result: table.Rollout = PATHS[path].rollout(model, request)
    return result


def fastest(model: Any, kv_bits: int | None = None) -> tuple[str, str]:
    """Return the path that `auto` takes for this model on this machine, and why it is no faster one, "" for the fastest."""
    reason = "kv_bits: mlx-lm cannot merge quantised caches" if kv_bits is not None else batched.why_not(model)
    if reason:
        without = prefix.why_not(model)
        return ("cached", f"{reason}, and {without}") if without else ("prefix", reason)
    reason = compiled.why_not(model)
    return ("batched" if reason else "compiled"), reason


def _fastest(model: Any, request: table.Request) -> table.Rollout:
    path, reason = fastest(model, request.kv_bits)
    if path in {"batched", "compiled"}:
        return compiled.rollout(model, request)
    result: table.Rollout = PATHS[path].rollout(model, request)
    result.reason = reason
    return result
