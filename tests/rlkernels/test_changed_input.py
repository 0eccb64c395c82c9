"""Another thread that writes to an input during a call: a result or an ordinary error, never a panic."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import rlkernels

Array = np.ndarray[Any, Any]

RNG = np.random.default_rng(0)
ROWS, WIDTH, VOCABULARY = 64, 256, 512
POLICY, OLD, REFERENCE = RNG.normal(-2, 1, (3, ROWS, WIDTH))
MASK = RNG.random((ROWS, WIDTH)) < 0.5
LENGTHS = RNG.integers(0, WIDTH + 1, ROWS)
RAGGED = np.full(ROWS * WIDTH // 16, 16)
ADVANTAGES = RNG.normal(size=ROWS)
LOGITS = RNG.normal(size=(ROWS, VOCABULARY))
IDS = RNG.integers(0, VOCABULARY, ROWS)
COUNTS = RNG.integers(1, 100, 20_000)
LOSS = {"old": OLD, "advantages": ADVANTAGES, "epsilon_low": 0.2, "epsilon_high": 0.2}
FILTERS = {
    "order": "hf",
    "temperature": 1.0,
    "top_k": 20,
    "top_p": 0.9,
    "xtc_probability": 0.5,
    "xtc_coin": RNG.random(ROWS),
}

#: Calls that are long enough to release the GIL, by function, with every layout of tokens.
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "filtered_logprobs": ("filtered_logprobs", {"logits": LOGITS, **FILTERS}),
    "full_kl": ("full_kl", {"policy_logprobs": LOGITS, "reference_logprobs": LOGITS[::-1].copy()}),
    "gae-ragged": (
        "gae",
        {"rewards": POLICY.ravel(), "values": OLD.ravel(), "gamma": 0.9, "lam": 0.9, "lengths": RAGGED},
    ),
    "group_advantages": ("group_advantages", {"rewards": POLICY.ravel(), "group_size": 8}),
    "importance_ratio": ("importance_ratio", {"policy": POLICY, "old": OLD, "level": "seq_mean", "mask": MASK}),
    "importance_weights": (
        "importance_weights",
        {"old": OLD, "sampling": REFERENCE, "correction": "tis", "level": "seq_sum", "c_max": 2.0, "lengths": LENGTHS},
    ),
    "normalise_then_sum": (
        "normalise_then_sum",
        {"rewards": POLICY, "weights": OLD[0], "group_size": 8}
        | {"group_ddof": 1, "group_eps": 1e-4, "batch_ddof": 1, "batch_eps": 1e-4},
    ),
    "pack_sequences": ("pack_sequences", {"lengths": COUNTS, "max_length": 100}),
    "pack_sequences-best": (
        "pack_sequences",
        {"lengths": COUNTS, "max_length": 100, "strategy": "best-fit-decreasing", "over_long": "truncate"},
    ),
    "philox4x32_10": (
        "philox4x32_10",
        {"counter": RNG.integers(0, 9, (8192, 4), np.uint32), "key": RNG.integers(0, 9, (8192, 2), np.uint32)},
    ),
    "policy_loss-mask": ("policy_loss", {"policy": POLICY, "algorithm": "grpo", "mask": MASK, **LOSS}),
    "policy_loss-lengths": ("policy_loss", {"policy": POLICY, "algorithm": "gspo", "lengths": LENGTHS, **LOSS}),
    "policy_loss-ragged": (
        "policy_loss",
        {"policy": POLICY.ravel(), "algorithm": "dapo", "lengths": RAGGED, **LOSS}
        | {"old": OLD.ravel(), "advantages": np.ones(len(RAGGED))},
    ),
    "ratio_statistics": (
        "ratio_statistics",
        {"policy": POLICY, "behaviour": OLD, "epsilon_low": 0.2, "epsilon_high": 0.2, "mask": MASK}
        | {"advantages": ADVANTAGES},
    ),
    "ratio_statistics-ragged": (
        "ratio_statistics",
        {"policy": POLICY.ravel(), "behaviour": OLD.ravel(), "epsilon_low": 0.2, "epsilon_high": 0.2}
        | {"lengths": RAGGED},
    ),
    "sample_tokens": ("sample_tokens", {"logits": LOGITS, "uniforms": RNG.random(ROWS), **FILTERS}),
    "selective_log_softmax": ("selective_log_softmax", {"logits": LOGITS, "ids": IDS, "entropy": True}),
    "selective_log_softmax_backward": (
        "selective_log_softmax_backward",
        {"logits": LOGITS, "ids": IDS, "grad_logprobs": ADVANTAGES},
    ),
    "token_kl-lengths": (
        "token_kl",
        {"policy": POLICY, "reference": REFERENCE, "estimator": "k3", "lengths": LENGTHS, "reduction": "mean"},
    ),
    "token_kl-ragged": (
        "token_kl",
        {"policy": POLICY.ravel(), "reference": REFERENCE.ravel(), "estimator": "k3", "lengths": RAGGED}
        | {"reduction": "sum"},
    ),
    "uniforms": (
        "uniforms",
        {"seed": 1, "round_": RNG.integers(0, 9, 8192), "prompt": 1, "sample": 2, "token": RNG.integers(0, 9, 8192)},
    ),
}


def _others(array: Array) -> list[Array]:
    """What a writer puts in the place of an array: other numbers that are legal, and some that are not."""
    if array.dtype == bool:
        return [np.ones_like(array), np.zeros_like(array)]
    if array.dtype.kind in "iu":
        return [array[::-1].copy(), np.zeros_like(array), np.full_like(array, np.iinfo(array.dtype).max)]
    return [array[::-1].copy(), np.full_like(array, np.nan), np.full_like(array, -np.inf), np.zeros_like(array)]


@contextmanager
def _writer(arrays: list[Array]) -> Iterator[None]:
    """A thread that writes to the arrays until the block ends."""
    kept = [array.copy() for array in arrays]
    others = [[*_others(array), array.copy()] for array in arrays]
    done = threading.Event()

    def write() -> None:
        number = 0
        while not done.is_set():
            for array, values in zip(arrays, others, strict=True):
                array[...] = values[number % len(values)]
            number += 1
            time.sleep(0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        for array, before in zip(arrays, kept, strict=True):
            array[...] = before


def test_every_kernel_with_arrays_is_called() -> None:
    """A new kernel needs a long call here."""
    without_arrays = {"available_isas", "build_info", "set_threads", "use_isa", "xtc_coins"}  # the last one is uniforms
    functions = {name for name in rlkernels.__all__ if not isinstance(getattr(rlkernels, name), type)}
    assert functions - without_arrays == {function for function, _ in CALLS.values()}


@pytest.mark.parametrize("name", CALLS)
def test_never_a_panic(name: str) -> None:
    """A result, a ValueError that the values of the moment deserve, or a RuntimeError that says what happened."""
    function, inputs = CALLS[name]
    arrays = [value for value in inputs.values() if isinstance(value, np.ndarray)]
    with _writer(arrays):
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            try:
                getattr(rlkernels, function)(**inputs)
            except ValueError:
                continue
            except RuntimeError as error:
                assert "an input array changed during the call" in str(error)  # noqa: PT017
