"""The peer mlx-lm: its samplers and logits processors, through one step of its own `generate_step`.

Before the first case two of MLX's random functions are replaced, so that a sampler returns its distribution:
`mx.random.categorical` returns its argument, and `mx.random.uniform`, which only XTC calls, returns the coin of the case.
MLX's compilation is disabled, because it would keep the first coin; timed calls are unchanged. The sampler's result is
normalised here, as `categorical` does internally.
This file is named like the package `mlx_lm`, so its folder must not be on `sys.path`.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).parent / "shared"))
import mlx.core as mx
import mlx_lm_steps
import numpy as np
from mlx_lm.generate import generate_step
from mlx_lm.sample_utils import apply_top_k, apply_top_p, greedy_sampler, make_logits_processors, make_sampler
from mlx_lm.tuner.losses import kl_div_loss
from peer_mlx import FakeModel, array, evaluated
from peer_timed import Timed

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]

VERSIONS = {name: version(name) for name in ("mlx-lm", "mlx")}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    **mlx_lm_steps.CONVENTIONS,
    "filtered_logprobs": {
        "order": ("mlx-lm",),
        "arithmetic": ("float32",),  # sample_utils.py:232: top-p adds up float32 masses
        "min_tokens_to_keep": (1, 12, 90),
    },
    "full_kl": {"arithmetic": ("float32",)},  # exp of float64 has a relative error of 2e-7 in MLX 0.32
}

PENALTIES = {"history": ("repetition",), "generated": ("presence", "frequency")}  # by the ids that they count
COIN = SimpleNamespace(value=1.0)
mx.set_default_device(mx.cpu)


def _show_distributions() -> None:
    """Patch MLX in this process so that samplers return their distribution."""
    mx.disable_compile()
    mx.random.categorical = lambda logits, *_, **__: logits
    mx.random.uniform = lambda *_, **__: mx.array(COIN.value)


def filtered_logprobs(*, logits: Array, xtc_coin: Array | None, **filters: Any) -> dict[str, Any]:
    """The distribution of the sampler, row by row, since each row has its own history and coin."""
    _show_distributions()
    if filters["top_p"] == 0.0:
        raise NotImplementedError("a top_p of 0 switches mlx-lm's filter off; its smallest nucleus is of a positive p")
    if filters["top_k"] >= logits.shape[-1]:
        raise NotImplementedError("mlx-lm takes a top_k below the size of the vocabulary, and says so")
    special, bias = filters.get("xtc_special_tokens"), filters.get("logit_bias")
    sampler = make_sampler(
        temp=filters["temperature"],
        min_tokens_to_keep=filters.get("min_tokens_to_keep", 1),
        xtc_special_tokens=None if special is None else special.tolist(),
        **{name: filters[name] for name in ("top_p", "min_p", "top_k", "xtc_probability", "xtc_threshold")},
    )
    rows = []
    for index, row in enumerate(logits):
        COIN.value = 1.0 if xtc_coin is None else float(xtc_coin[index])
        processors = make_logits_processors(None if bias is None else dict(enumerate(bias.tolist())))
        for name, penalties in PENALTIES.items():
            value = filters.get(name)
            ids = [] if value is None else value[index][value[index] >= 0].tolist()
            options = {f"{penalty}_penalty": filters.get(f"{penalty}_penalty") for penalty in penalties}
            sizes = {f"{penalty}_context_size": 10_000 for penalty in penalties}
            if ids:
                processors += [_reading(ids, run) for run in make_logits_processors(**options, **sizes)]
        rows.append(_drawn_from(row, sampler, processors))
    return {"logprobs": np.stack(rows)}


def _reading(ids: list[int], run: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Let a processor read these ids: each penalty of a case has its own list, while mlx-lm passes one list to all."""
    return lambda _, logits: run(mx.array(ids), logits)


def _drawn_from(row: Array, sampler: Callable[[Any], Any], processors: list[Callable[[Any, Any], Any]]) -> Array:
    """Run one step of generate_step on a model with these logits; return the log-probs of the sampler's distribution."""
    scores: list[Any] = []

    def recorded(logprobs: Any) -> Any:
        scores.append(sampler(logprobs))
        return mx.array([0])

    model = FakeModel(array(row)[None, None])
    options = {"sampler": recorded, "logits_processors": processors, "prompt_cache": []}
    next(generate_step(mx.array([0]), model, max_tokens=1, **options))
    if sampler is greedy_sampler:
        return np.where(np.arange(row.size) == scores[0].item(), 0.0, -np.inf)
    return _normalised(np.array(scores[0][0])).astype(row.dtype)


def _normalised(scores: Array) -> Array:
    """Return float64 log-probs of scores along the last axis."""
    high = scores.max(axis=-1, keepdims=True).astype(np.float64)
    return scores - high - np.log(np.exp(scores - high).sum(axis=-1, keepdims=True))


def full_kl(policy_logprobs: Array, reference_logprobs: Array) -> dict[str, Any]:
    """Its KL(p, q) of logits, computed by its Metal kernel on macOS and by MLX elsewhere."""
    mx.disable_compile()
    return {"kl": np.array(kl_div_loss(array(reference_logprobs), array(policy_logprobs)))}


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    "filtered_logprobs": filtered_logprobs,
    "full_kl": full_kl,
    **mlx_lm_steps.OPS,
}

NORMALISE = "logits - mx.logsumexp(logits, axis=-1, keepdims=True)"  # as its generate_step does


def timed_filtered_logprobs(logits: Array, *, top_k: int = 0, top_p: float = 1.0, **_: Any) -> Timed:
    """One filter after the normalisation of `generate_step`."""
    call, function = (f", {top_p}", apply_top_p) if top_p < 1.0 else (f", {top_k}", apply_top_k)
    names = {"mx": mx, "evaluated": evaluated, "logits": evaluated(array(logits)), function.__name__: function}
    return Timed(
        f"evaluated({function.__name__}({NORMALISE}{call}))",
        names,
        lambda result: {"logprobs": _normalised(np.array(result))},
        "mlx_lm.sample_utils after the normalisation of generate_step; its scores are not normalised again, ours are",
    )


def timed_sample_tokens(logits: Array, *, top_k: int = 0, top_p: float = 1.0, **_: Any) -> Timed:
    """From logits to tokens, by the sampler that `generate` makes."""
    filters = {"top_p": top_p} if top_p < 1.0 else {"top_k": top_k}
    names = {
        "mx": mx,
        "evaluated": evaluated,
        "logits": evaluated(array(logits)),
        "sampler": make_sampler(1.0, **filters),
    }
    return Timed(
        f"evaluated(sampler({NORMALISE}))",
        names,
        lambda result: {"tokens": np.array(result).reshape(-1)},
        "make_sampler after the normalisation of generate_step; it draws with its own generator, ours takes uniforms",
    )


TIMED: dict[str, Callable[..., Timed]] = {
    "filtered_logprobs": timed_filtered_logprobs,
    "sample_tokens": timed_sample_tokens,  # not in OPS: tokens of another generator cannot be judged one by one
}
