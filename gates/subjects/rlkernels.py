"""The project's own Rust kernels, through the functions that a user of `rlkernels` calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rlkernels

if TYPE_CHECKING:
    from collections.abc import Callable

CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {}


def _versions() -> dict[str, str]:
    info = rlkernels.build_info()
    return {
        "rlkernels": info["version"],
        "rlkernels profile": info["profile"],
        "rlkernels target": info["target"],
        "rlkernels instruction sets": " ".join(info["features"]),
        "rlkernels threads": str(info["threads"]),
        "rustc": info["rustc"],
    }


def group_advantages(**inputs: Any) -> dict[str, Any]:
    """Advantages of prompt-major rewards. A convention that a case leaves open (None) is left to the default."""
    return {"advantages": rlkernels.group_advantages(**{k: v for k, v in inputs.items() if v is not None})}


def token_kl(**inputs: Any) -> dict[str, Any]:
    """Sampled KL per token, or per sequence."""
    return {"kl": rlkernels.token_kl(**inputs)}


def pack_sequences(**inputs: Any) -> dict[str, Any]:
    """First-fit-decreasing bins."""
    indices, offsets, _ = rlkernels.pack_sequences(**inputs)
    return {"indices": indices, "offsets": offsets}


VERSIONS = _versions()
OPS: dict[str, Callable[..., dict[str, Any]]] = {
    "group_advantages": group_advantages,
    "token_kl": token_kl,
    "pack_sequences": pack_sequences,
}
