"""The NumPy baseline: what a careful user would write by hand, in the dtype of the data.

Narrow data is widened to float64 inside and rounded once at the end; float64 differences keep their rounding error
beside them. Many functions are small so that `gates prove` can replace one of them by a mistaken one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gates.subjects.numpy_baseline import advantages, kl, logprobs, loss, packing, preference, ratio, sampling

if TYPE_CHECKING:
    from collections.abc import Callable

VERSIONS = {"numpy": np.__version__}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "filtered_logprobs": {"ties": ("lower-id",)},
    "policy_loss": {"algorithm": tuple(loss.SURROGATES)},
}


def _named(names: tuple[str, ...], results: Any) -> dict[str, Any]:
    return dict(zip(names, results if isinstance(results, tuple) else (results,), strict=False))


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    "group_advantages": lambda **inputs: {"advantages": advantages.group_advantages(**inputs)},
    "token_kl": lambda **inputs: {"kl": kl.token_kl(**inputs)},
    "normalise_then_sum": lambda **inputs: {"advantages": advantages.normalise_then_sum(**inputs)},
    "full_kl": lambda **inputs: {"kl": logprobs.full_kl(**inputs)},
    "selective_log_softmax": lambda **inputs: _named(("logprobs", "entropy"), logprobs.selective_log_softmax(**inputs)),
    "selective_log_softmax_backward": lambda **inputs: {"gradient": logprobs.selective_log_softmax_backward(**inputs)},
    "filtered_logprobs": lambda **inputs: {"logprobs": sampling.filtered_logprobs(**inputs)},
    "sample_tokens": lambda **inputs: _named(("tokens", "logprobs"), sampling.sample_tokens(**inputs)),
    "philox4x32_10": lambda **inputs: {"words": sampling.philox4x32_10(**inputs)},
    "uniforms": lambda **inputs: {"uniforms": sampling.uniforms(**inputs)},
    "xtc_coins": lambda **inputs: {"uniforms": sampling.xtc_coins(**inputs)},
    "pack_sequences": lambda **inputs: _named(("indices", "offsets", "efficiency"), packing.pack_sequences(**inputs)),
    "policy_loss": lambda **inputs: dict(zip(("loss", "gradient"), loss.policy_loss(**inputs), strict=True)),
    "importance_ratio": lambda **inputs: {"ratio": ratio.importance_ratio(**inputs)},
    "importance_weights": lambda **inputs: {"weights": ratio.importance_weights(**inputs)},
    "ratio_statistics": ratio.ratio_statistics,
    "preference_loss": lambda **inputs: _named(("loss", "gradient"), preference.preference_loss(**inputs)),
    "kto_loss": lambda **inputs: _named(("loss", "gradient"), preference.kto_loss(**inputs)),
    "prefer": lambda **inputs: {"signs": preference.prefer(**inputs)},
    "best_of_n": lambda **inputs: {"rows": preference.best_of_n(**inputs)},
}
