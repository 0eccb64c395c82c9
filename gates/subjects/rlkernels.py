"""The project's Rust kernels, through the public functions of `rlkernels`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

import rlkernels
from gates_reference.algorithms import ALGORITHMS
from gates_reference.kernels import KERNELS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Operation = Callable[..., dict[str, Any]]

THREADS = (1, 2, 3)


def _algorithms() -> tuple[str, ...]:
    """Return the policy losses of this build, which refuses other names."""
    nothing = np.zeros((1, 1), np.float32)

    def has(name: str) -> bool:
        try:
            policy_loss(policy=nothing, advantages=nothing[0], algorithm=name, **ALGORITHMS[name].constants)
        except TypeError:  # an unknown constant of this algorithm
            return False
        except ValueError as error:
            return not str(error).startswith("`algorithm` is ")
        return True

    return tuple(name for name in ALGORITHMS if has(name)) if hasattr(rlkernels, "policy_loss") else ()


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
    """Return the instruction set that RLKERNELS_ISA forces, after checking that it is in use.

    Raises:
        NotImplementedError: this machine or build lacks it, so the subject is absent.
        RuntimeError: the variable had no effect.
    """
    if not isa:
        return {}
    if isa not in (offered := rlkernels.available_isas()):
        raise NotImplementedError(f"rlkernels offers {', '.join(offered)} here, not {isa}")
    if (used := rlkernels.use_isa(isa)) != isa:
        raise RuntimeError(f"RLKERNELS_ISA is {isa}, and rlkernels was using {used}")
    return {"rlkernels forced to": isa}


def policy_loss(**inputs: Any) -> dict[str, Any]:
    """Loss and gradient; inputs that an algorithm does not use (None) keep their default."""
    result = rlkernels.policy_loss(**{name: value for name, value in inputs.items() if value is not None})
    return {"loss": result.loss, "gradient": result.gradient}


def group_advantages(**inputs: Any) -> dict[str, Any]:
    """Advantages of prompt-major rewards; a convention that a case leaves open (None) keeps its default."""
    return {"advantages": rlkernels.group_advantages(**{k: v for k, v in inputs.items() if v is not None})}


def kernel_bits(*, kernel: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """All outputs of a kernel as bytes, one row for each instruction set of this machine with 1, 2 and 3 threads."""
    if kernel not in OPS:
        raise NotImplementedError(f"{kernel} is not defined by rlkernels")
    for name, choices in CONVENTIONS.get(kernel, {}).items():
        if name in inputs and inputs[name] not in choices:
            raise NotImplementedError(f"{kernel} of rlkernels has {name} {', '.join(choices)}, not {inputs[name]!r}")
    isas = rlkernels.available_isas()
    if len(isas) < 2:
        raise NotImplementedError(f"this machine offers one instruction set only, {isas[0]}")
    variants = [(isa, threads) for isa in isas for threads in THREADS]
    rows = [variant_bytes(OPS[kernel], inputs, isa, threads) for isa, threads in variants]
    return {"variants": [f"{isa} × {threads}" for isa, threads in variants], "bits": np.stack(rows)}


def variant_bytes(operation: Operation, inputs: Mapping[str, Any], isa: str, threads: int) -> np.ndarray[Any, Any]:
    """Run an op on one instruction set with `threads` threads and return the bytes of its outputs."""
    before = rlkernels.use_isa(isa), rlkernels.set_threads(threads)
    try:
        outputs = operation(**inputs)
    finally:
        rlkernels.use_isa(before[0])
        rlkernels.set_threads(before[1])
    parts = [np.asarray(outputs[name]).tobytes() for name in sorted(outputs)]
    return np.frombuffer(b"".join(parts), np.uint8)


def _operation(name: str, outputs: tuple[str, ...]) -> Operation:
    """Return the op that calls the function of the same name and names its results `outputs`."""

    def operation(**inputs: Any) -> dict[str, Any]:
        results = getattr(rlkernels, name)(**inputs)
        if isinstance(results, dict):
            return results
        return dict(zip(outputs, results if isinstance(results, tuple) else (results,), strict=False))

    return operation


VERSIONS = _versions()
CHOICES: dict[str, dict[str, tuple[Any, ...]]] = {
    "group_advantages": {"nan_rewards": ("unscored",), "baseline": ("mean", "leave-one-out")},
    "normalise_then_sum": {"nan_rewards": ("unscored",)},
    "importance_weights": {"nan_sampling": ("unrecorded",)},
    **{op: {"ties": ("library", "all", "lower-id")} for op in ("filtered_logprobs", "sample_tokens")},
    "policy_loss": {"algorithm": _algorithms()},
    "pack_sequences": {"order": ("as-placed",)},
}
OWN = {"group_advantages": group_advantages, "policy_loss": policy_loss}
OPS: dict[str, Operation] = {  # ops without a kernel in this build are unsupported
    **{
        name: OWN.get(name) or _operation(name, kernel.outputs)
        for name, kernel in KERNELS.items()
        if hasattr(rlkernels, name)
    },
    "kernel_bits": kernel_bits,
}
CONVENTIONS = {op: {"arithmetic": ("float64",), **CHOICES.get(op, {})} for op in OPS}  # float32 would not be right
