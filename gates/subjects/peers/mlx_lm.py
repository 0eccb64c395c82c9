"""The peer mlx-lm: its samplers and logits processors, through one step of its own `generate_step`.

Two of MLX's random functions are replaced, so that a sampler returns what it would draw from: `mx.random.categorical`
returns its argument, and `mx.random.uniform`, which only XTC calls, returns the coin of the case. MLX's compilation is
off, because it would keep the first coin. What the sampler returns is normalised here, as `categorical` does inside.
The package `mlx_lm` has the name of this file: this folder must not be on `sys.path`.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).parent / "shared"))
import mlx.core as mx
import numpy as np
from mlx_lm.generate import generate_step
from mlx_lm.sample_utils import greedy_sampler, make_logits_processors, make_sampler
from mlx_lm.tuner.losses import kl_div_loss
from peer_mlx import FakeModel, array

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]

VERSIONS = {name: version(name) for name in ("mlx-lm", "mlx")}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
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
mx.disable_compile()
mx.random.categorical = lambda logits, *_, **__: logits
mx.random.uniform = lambda *_, **__: mx.array(COIN.value)


def filtered_logprobs(*, logits: Array, xtc_coin: Array | None, **filters: Any) -> dict[str, Any]:
    """What the sampler draws from, row by row: each row has its own history and coin."""
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
            given = filters.get(name)
            ids = [] if given is None else given[index][given[index] >= 0].tolist()
            options = {f"{penalty}_penalty": filters.get(f"{penalty}_penalty") for penalty in penalties}
            sizes = {f"{penalty}_context_size": 10_000 for penalty in penalties}
            if ids:
                processors += [_reading(ids, run) for run in make_logits_processors(**options, **sizes)]
        rows.append(_drawn_from(row, sampler, processors))
    return {"logprobs": np.stack(rows)}


def _reading(ids: list[int], run: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Let a processor read these ids: the cases give penalties lists of their own, mlx-lm gives all the same."""
    return lambda _, logits: run(mx.array(ids), logits)


def _drawn_from(row: Array, sampler: Callable[[Any], Any], processors: list[Callable[[Any, Any], Any]]) -> Array:
    """Run one step of generate_step on a model with these logits; return log-probs of what the sampler draws from."""
    found: list[Any] = []

    def recorded(logprobs: Any) -> Any:
        found.append(sampler(logprobs))
        return mx.array([0])

    model = FakeModel(array(row)[None, None])
    options = {"sampler": recorded, "logits_processors": processors, "prompt_cache": []}
    next(generate_step(mx.array([0]), model, max_tokens=1, **options))
    if sampler is greedy_sampler:
        return np.where(np.arange(row.size) == found[0].item(), 0.0, -np.inf)
    scores = np.array(found[0][0])
    high = scores.max().astype(np.float64)
    return (scores - high - np.log(np.exp(scores - high).sum())).astype(row.dtype)


def full_kl(policy_logprobs: Array, reference_logprobs: Array) -> dict[str, Any]:
    """Its KL(p, q) of logits; on macOS a Metal kernel of its own computes it, elsewhere MLX."""
    return {"kl": np.array(kl_div_loss(array(reference_logprobs), array(policy_logprobs)))}


OPS: dict[str, Callable[..., dict[str, Any]]] = {"filtered_logprobs": filtered_logprobs, "full_kl": full_kl}
