"""The project's own Rust kernels, through the functions that a user of `rlkernels` calls."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

import rlkernels

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Operation = Callable[..., dict[str, Any]]

CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {"filtered_logprobs": {"ties": ("lower-id",)}}
THREADS = (1, 2, 3)


def _versions() -> dict[str, str]:
    info = rlkernels.build_info()
    return {
        "rlkernels": info["version"],
        "rlkernels profile": info["profile"],
        "rlkernels target": info["target"],
        "rlkernels instruction sets": " ".join(info["features"]),
        "rlkernels threads": str(info["threads"]),
        "rustc": info["rustc"],
        **_forced(os.environ.get("RLKERNELS_ISA", "")),
    }


def _forced(isa: str) -> dict[str, str]:
    """Return the instruction set that RLKERNELS_ISA forces, having seen that it is the one in use.

    Raises:
        OSError: it is not offered here: the subject is absent.
        RuntimeError: the variable reached nothing.
    """
    if not isa:
        return {}
    if isa not in (offered := rlkernels.available_isas()):
        raise OSError(f"rlkernels offers {', '.join(offered)} here, not {isa}")
    if (used := rlkernels.use_isa(isa)) != isa:
        raise RuntimeError(f"RLKERNELS_ISA is {isa}, and rlkernels was using {used}")
    return {"rlkernels forced to": isa}


def group_advantages(**inputs: Any) -> dict[str, Any]:
    """Advantages of prompt-major rewards. A convention that a case leaves open (None) is left to the default."""
    return {"advantages": rlkernels.group_advantages(**{k: v for k, v in inputs.items() if v is not None})}


def token_kl(**inputs: Any) -> dict[str, Any]:
    """Sampled KL per token, or per sequence."""
    return {"kl": rlkernels.token_kl(**inputs)}


def pack_sequences(**inputs: Any) -> dict[str, Any]:
    """Bins, and how full they are."""
    return dict(zip(("indices", "offsets", "efficiency"), rlkernels.pack_sequences(**inputs), strict=True))


def selective_log_softmax(**inputs: Any) -> dict[str, Any]:
    """Log-probs of tokens, and the entropy where it is asked for."""
    names = ("logprobs", "entropy") if inputs["entropy"] else ("logprobs",)
    return _plain("selective_log_softmax", *names)(**inputs)


def policy_loss(**inputs: Any) -> dict[str, Any]:
    """Loss and gradient. What an algorithm does not read (None) is left to the default."""
    found = rlkernels.policy_loss(**{name: value for name, value in inputs.items() if value is not None})
    return {"loss": found.loss, "gradient": found.gradient}


def ratio_statistics(**inputs: Any) -> dict[str, Any]:
    """Every statistic under its own name."""
    return dict(rlkernels.ratio_statistics(**inputs))


def kernel_bits(*, kernel: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """All outputs of a kernel as bytes, one row for each instruction set of this machine with 1, 2 and 3 threads."""
    if kernel not in OPS:
        raise NotImplementedError(f"{kernel} is not defined by rlkernels")
    isas = rlkernels.available_isas()
    if len(isas) < 2:
        raise NotImplementedError(f"this machine offers one instruction set only, {isas[0]}")
    variants = [(isa, threads) for isa in isas for threads in THREADS]
    rows = [variant_bytes(OPS[kernel], inputs, isa, threads) for isa, threads in variants]
    return {"variants": [f"{isa} × {threads}" for isa, threads in variants], "bits": np.stack(rows)}


def variant_bytes(operation: Operation, inputs: Mapping[str, Any], isa: str, threads: int) -> np.ndarray[Any, Any]:
    """Run an op on one instruction set with so many threads and return its outputs as they lie in memory."""
    before = rlkernels.use_isa(isa), rlkernels.set_threads(threads)
    try:
        outputs = operation(**inputs)
    finally:
        rlkernels.use_isa(before[0])
        rlkernels.set_threads(before[1])
    parts = [np.asarray(outputs[name]).tobytes() for name in sorted(outputs)]
    return np.frombuffer(b"".join(parts), np.uint8)


def _plain(function: str, *outputs: str) -> Operation:
    """Return the op whose keywords are the function's, and whose results have these names."""

    def operation(**inputs: Any) -> dict[str, Any]:
        found = getattr(rlkernels, function)(**inputs)
        return dict(zip(outputs, found if len(outputs) > 1 else (found,), strict=True))

    return operation


VERSIONS = _versions()
OPS: dict[str, Operation] = {
    "group_advantages": group_advantages,
    "normalise_then_sum": _plain("normalise_then_sum", "advantages"),
    "token_kl": token_kl,
    "full_kl": _plain("full_kl", "kl"),
    "selective_log_softmax": selective_log_softmax,
    "selective_log_softmax_backward": _plain("selective_log_softmax_backward", "gradient"),
    "filtered_logprobs": _plain("filtered_logprobs", "logprobs"),
    "sample_tokens": _plain("sample_tokens", "tokens", "logprobs"),
    "philox4x32_10": _plain("philox4x32_10", "words"),
    "uniforms": _plain("uniforms", "uniforms"),
    "xtc_coins": _plain("xtc_coins", "uniforms"),
    "pack_sequences": pack_sequences,
    "importance_ratio": _plain("importance_ratio", "ratio"),
    "importance_weights": _plain("importance_weights", "weights"),
    "ratio_statistics": ratio_statistics,
    "policy_loss": policy_loss,
}
OPS["kernel_bits"] = kernel_bits
